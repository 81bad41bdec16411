package nvme

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is a region, a worker's hands and a queue, closed and audited at the end
// of the test, whose goroutine is locked to its thread.
type rig struct {
	testing.TB
	region *umem.Region
	book   *umem.Book
	hands  *umem.Holder
	queue  *Queue
}

func newRig(t testing.TB, rc umem.Config, c Config) *rig {
	t.Helper()
	if rc.Size == 0 {
		rc.Size = 8 << 20
	}
	testenv.HugePages(t, rc.Size+rc.Control+2*testenv.HugePageSize)
	region, err := umem.Open(rc)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	r := &rig{TB: t, region: region, book: region.NewBook(t.Name())}
	t.Cleanup(r.end)
	if r.hands, err = r.book.NewHolder(umem.OwnerWorker, "hands of "+t.Name()); err != nil {
		t.Fatal(err)
	}
	c.Worker = r.hands
	if r.queue, err = Open(c); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) end() {
	r.Helper()
	defer runtime.UnlockOSThread()
	if r.queue != nil {
		if err := r.queue.Close(); err != nil {
			r.Error(err)
		}
	}
	r.hands.Close()
	if c, err := r.region.Audit(); err != nil || c.Of(umem.OwnerPool) != r.region.Frames() {
		r.Errorf("at the end the pool has %d of %d frames: %v", c.Of(umem.OwnerPool), r.region.Frames(), err)
	}
	if err := r.book.Close(); err != nil {
		r.Error(err)
	}
	if err := r.region.Close(); err != nil {
		r.Error(err)
	}
}

func (r *rig) open(c TargetConfig) *Target {
	r.Helper()
	t, err := OpenTarget(c)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { t.Close() })
	return t
}

func (r *rig) add(t *Target) uint32 {
	r.Helper()
	i, err := r.queue.Add(t)
	if err != nil {
		r.Fatal(err)
	}
	return i
}

func (r *rig) take(n int) []umem.Frame {
	r.Helper()
	fs := make([]umem.Frame, n)
	if got := r.hands.Take(fs); got != n {
		r.Fatalf("the pool gave %d of %d frames", got, n)
	}
	return fs
}

// collect kicks and takes with verb until n frames came.
func (r *rig) collect(n int, verb func([]umem.Frame) int) []umem.Frame {
	r.Helper()
	var out []umem.Frame
	dst := make([]umem.Frame, 64)
	for end := time.Now().Add(5 * time.Second); len(out) < n; {
		if err := r.queue.Kick(); err != nil {
			r.Fatal(err)
		}
		out = append(out, dst[:verb(dst)]...)
		if time.Now().After(end) {
			r.Fatalf("%d of %d frames came back", len(out), n)
		}
	}
	return out
}

func TestFileRoundTrip(t *testing.T) {
	r := newRig(t, umem.Config{Control: 2 << 20}, Config{})
	t.Log(r.queue.Granted())
	target := r.open(TargetConfig{Path: testenv.DiskDir(t) + "/f", Create: true, Exclusive: true, Size: 1 << 20, Prepare: PrepareZero})
	t.Log(target.Alignment())
	i := r.add(target)
	fs := r.take(16)
	for k, f := range fs {
		*r.region.Side(f) = umem.Side{Target: i, Block: uint64(k) * 4096}
		for j := range r.region.Bytes(f) {
			r.region.Bytes(f)[j] = byte(j*7 + k)
		}
	}
	if n := r.queue.Send(fs); n != len(fs) {
		t.Fatalf("Send took %d", n)
	}
	fs = r.collect(len(fs), r.queue.Reap)
	disk, err := os.ReadFile(target.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		if f.Err() != nil {
			t.Fatal(f.Err())
		}
		at := r.region.Side(f).Block
		if !bytes.Equal(disk[at:at+4096], r.region.Bytes(f)) {
			t.Errorf("block %d differs on disk", at)
		}
		clear(r.region.Bytes(f))
	}
	if n := r.queue.Supply(fs); n != len(fs) {
		t.Fatalf("Supply took %d", n)
	}
	for _, f := range r.collect(len(fs), r.queue.Recv) {
		at := r.region.Side(f).Block
		if f.Err() != nil || !bytes.Equal(disk[at:at+4096], r.region.Bytes(f)) {
			t.Errorf("block %d was read wrong: %v", at, f.Err())
		}
	}
	t.Logf("%+v", r.queue.Stats())
}
