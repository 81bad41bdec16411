package nvme

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is a region, a worker's holder and a queue. The end of the test closes and audits them. The
// test's goroutine is locked to its thread.
type rig struct {
	testing.TB
	region *umem.Region
	book   *umem.Book
	hands  *umem.Holder
	queue  *Queue
	places map[*Target]uint32
}

// newRig opens a rig. The region has 8 MiB of frames and 2 MiB of control area unless configured.
func newRig(t testing.TB, rc umem.Config, c Config) *rig {
	t.Helper()
	if rc.Size == 0 {
		rc.Size = 8 << 20
	}
	if rc.Control == 0 {
		rc.Control = 2 << 20
	}
	testenv.HugePages(t, rc.Size+rc.Control)
	region, err := umem.Open(rc)
	testenv.Must(t, err)
	runtime.LockOSThread()
	r := &rig{TB: t, region: region, book: region.NewBook(t.Name()), places: make(map[*Target]uint32)}
	t.Cleanup(r.end)
	r.hands, err = r.book.NewHolder(umem.OwnerWorker, "hands of "+t.Name())
	testenv.Must(t, err)
	r.reopen(c)
	return r
}

// reopen opens a queue. It replaces a closed one if there was one.
func (r *rig) reopen(c Config) {
	r.Helper()
	c.Worker = r.hands
	q, err := Open(c)
	testenv.Must(r, err)
	r.queue = q
	clear(r.places)
}

// end closes everything and counts the frames.
func (r *rig) end() {
	r.Helper()
	defer runtime.UnlockOSThread()
	if r.queue != nil {
		r.check(r.queue.Close())
	}
	r.hands.Close()
	if c, err := r.region.Audit(); err != nil || c.Of(umem.OwnerPool) != r.region.Frames() {
		r.Errorf("at the end the pool has %d of %d frames: %v", c.Of(umem.OwnerPool), r.region.Frames(), err)
	}
	r.check(r.book.Close())
	r.check(r.region.Close())
}

// check reports an error and continues.
func (r *rig) check(err error) { r.Helper(); testenv.Check(r, err) }

// open opens a target and adds it to the queue. The end of the test closes it.
func (r *rig) open(c TargetConfig) (*Target, uint32) {
	r.Helper()
	t, err := OpenTarget(c)
	testenv.Must(r, err)
	r.Cleanup(func() {
		r.Helper()
		if i, there := r.places[t]; there {
			if err := r.queue.Remove(i); !errors.Is(err, ErrClosed) {
				r.check(err)
			}
		}
		r.check(t.Close())
	})
	return t, r.add(t)
}

func (r *rig) add(t *Target) uint32 {
	r.Helper()
	i, err := r.queue.Add(t)
	testenv.Must(r, err)
	r.places[t] = i
	return i
}

// take takes frames from the pool.
func (r *rig) take(n int) []umem.Frame {
	r.Helper()
	fs := make([]umem.Frame, n)
	if got := r.hands.Take(fs); got != n {
		r.Fatalf("the pool gave %d of %d frames", got, n)
	}
	return fs
}

// at sets a frame's place on a target.
func (r *rig) at(f umem.Frame, target uint32, block uint64) umem.Frame {
	*r.region.Side(f) = umem.Side{Target: target, Block: block}
	return f
}

// fill fills a frame with bytes that follow from the seed.
func (r *rig) fill(f umem.Frame, seed uint64) { fillRandom(r.region.Bytes(f), seed) }

func fillRandom(b []byte, seed uint64) {
	c := rand.NewPCG(seed, 1)
	for i := range b {
		b[i] = byte(c.Uint64() >> 8)
	}
}

// chained makes frames one chain.
func chained(fs []umem.Frame) []umem.Frame {
	for i := range fs[:len(fs)-1] {
		fs[i].Options |= umem.More
	}
	return fs
}

// collect kicks, and calls verb until it has returned n frames.
func (r *rig) collect(n int, verb func([]umem.Frame) int) []umem.Frame {
	r.Helper()
	var out []umem.Frame
	dst := make([]umem.Frame, 64)
	for end := time.Now().Add(10 * time.Second); len(out) < n; {
		testenv.Must(r, r.queue.Kick())
		out = append(out, dst[:verb(dst)]...)
		if time.Now().After(end) {
			r.Fatalf("%d of %d frames came back", len(out), n)
		}
	}
	return out
}

// write sends frames and waits until they are written without errors.
func (r *rig) write(fs []umem.Frame) []umem.Frame {
	r.Helper()
	return r.move(fs, r.queue.Send, r.queue.Reap)
}

// read is write for reads.
func (r *rig) read(fs []umem.Frame) []umem.Frame {
	r.Helper()
	return r.move(fs, r.queue.Supply, r.queue.Recv)
}

func (r *rig) move(fs []umem.Frame, in, out func([]umem.Frame) int) []umem.Frame {
	r.Helper()
	back := r.moveAny(fs, in, out)
	for _, f := range back {
		if f.Err() != nil {
			r.Fatalf("frame at %#x for %d: %v", f.Addr, r.region.Side(f).Block, f.Err())
		}
	}
	return back
}

// moveAny is move that ignores errors.
func (r *rig) moveAny(fs []umem.Frame, in, out func([]umem.Frame) int) []umem.Frame {
	r.Helper()
	if n := in(fs); n != len(fs) {
		r.Fatalf("%d of %d frames were taken", n, len(fs))
	}
	return r.collect(len(fs), out)
}

// flush makes a target durable.
func (r *rig) flush(target uint32, token uint64) FlushResult {
	r.Helper()
	testenv.Must(r, r.queue.Flush(target, token))
	var dst [1]FlushResult
	testenv.Wait(r, 10*time.Second, "a flush", func() bool {
		testenv.Must(r, r.queue.Kick())
		return r.queue.Flushed(dst[:]) == 1
	})
	return dst[0]
}

// onDisk reads with another program, directly from the disk.
func onDisk(t testing.TB, path string, block, n uint64) []byte {
	t.Helper()
	const unit = 4096
	out, err := exec.Command(testenv.Tool(t, "dd"), "if="+path, "iflag=direct", "status=none", "bs="+strconv.Itoa(unit),
		"skip="+strconv.FormatUint(block/unit, 10), "count="+strconv.FormatUint((block%unit+n+unit-1)/unit, 10)).Output()
	testenv.Mustf(t, err, "read %s with dd", path)
	return out[block%unit:][:n]
}

// kinds are the targets of most tests.
var kinds = []struct {
	name   string
	config func(t testing.TB, size uint64) TargetConfig
}{
	{"file", fileTarget},
	{"zram", zramTarget},
	{"loop", loopTarget},
}

func fileTarget(t testing.TB, size uint64) TargetConfig {
	return TargetConfig{Path: testenv.DiskDir(t) + "/target", Create: true, Size: size, Prepare: PrepareZero}
}

func zramTarget(t testing.TB, size uint64) TargetConfig {
	return TargetConfig{Path: testenv.Zram(t, size), Size: size}
}

func loopTarget(t testing.TB, size uint64) TargetConfig {
	return TargetConfig{Path: testenv.Loop(t, testenv.DiskFile(t, size), 0), Size: size}
}

// emptyFile returns a target that grows.
func emptyFile(t testing.TB) TargetConfig {
	return TargetConfig{Path: testenv.DiskDir(t) + "/target", Create: true}
}

// sizeOf returns the present size of a file.
func sizeOf(t testing.TB, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	testenv.Must(t, err)
	return st.Size()
}
