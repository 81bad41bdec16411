package nvme

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// ice is a file on a small file system that can be frozen. Writes to it then wait, uninterruptibly,
// until it is thawed.
type ice struct {
	t      testing.TB
	config TargetConfig
	dir    string
	mu     sync.Mutex
	melt   func() error // thaws the file system; set while it is frozen
}

func newIce(t testing.TB) *ice {
	t.Helper()
	dir := testenv.Ext4(t, 4<<20)
	w := &ice{t: t, dir: dir, config: TargetConfig{Path: dir + "/target", Create: true, Size: 1 << 20, Prepare: PrepareZero}}
	t.Cleanup(w.thaw)
	return w
}

func (w *ice) freeze() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	w.melt, err = testenv.Freeze(w.dir)
	testenv.Must(w.t, err)
}

// thaw may be called more than once.
func (w *ice) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.melt == nil {
		return
	}
	testenv.Check(w.t, w.melt())
	w.melt = nil
}

// stuckInFreeze reports whether a thread of this process waits for a file system to thaw. An
// operation that has not come that far can be cancelled.
func stuckInFreeze() bool {
	threads, _ := filepath.Glob("/proc/self/task/*/wchan")
	for _, name := range threads {
		if text, _ := os.ReadFile(name); string(text) == "percpu_rwsem_wait" {
			return true
		}
	}
	return false
}

// TestStuck: if a disk does not answer, Close keeps the frames of its operations and the registration. It
// returns the frames of other operations, and of operations that wait in the kernel and can be cancelled.
func TestStuck(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	ice := newIce(t)
	_, slow := r.open(ice.config)
	_, fast := r.open(fileTarget(t, 1<<20))
	ice.freeze()
	defer ice.thaw()
	fs := r.take(5)
	r.queue.Send([]umem.Frame{r.at(fs[0], slow, 0), r.at(fs[1], slow, 4096), r.at(fs[2], fast, 0), r.at(fs[3], fast, 100)})
	r.check(r.queue.Kick())
	r.queue.Send([]umem.Frame{r.at(fs[4], slow, 8192)})
	testenv.Wait(t, 10*time.Second, "a write to reach the frozen disk", stuckInFreeze)
	r.queue.SetPatience(200 * time.Millisecond)
	begin := time.Now()
	err := r.queue.Close()
	var stuck *StuckError
	if !errors.As(err, &stuck) || time.Since(begin) > 3*time.Second {
		t.Fatalf("Close after %v: %v", time.Since(begin), err)
	}
	if n := int64(stuck.Operations); n < 1 || n > 2 || stuck.Frames != n {
		t.Errorf("of two writes to the frozen disk and three others: %v", err)
	}
	if got := r.queue.holder.Held(); got != stuck.Frames || r.hands.Held() != 0 {
		t.Errorf("the queue holds %d frames, the worker %d", got, r.hands.Held())
	}
	if names := r.region.Registered(); len(names) != 1 {
		t.Errorf("registered: %v", names)
	}
	if r.queue.Reap(fs) != 0 || r.queue.Send(fs) != 0 || !errors.Is(r.queue.Kick(), ErrClosed) {
		t.Error("a closed queue works on")
	}
	ice.thaw()
	r.queue.SetPatience(10 * time.Second)
	r.check(r.queue.Close())
	r.check(r.queue.Close())
}

// TestCloseUnsubmitted: operations without a Kick never reach the disk.
func TestCloseUnsubmitted(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	to, i := r.open(fileTarget(t, 1<<20))
	fs := r.take(4)
	for k, f := range fs {
		r.fill(r.at(f, i, uint64(k)*4096), 1)
	}
	r.queue.Send(fs)
	r.check(r.queue.Flush(i, 1))
	r.check(r.queue.Close())
	if n := r.queue.Stats().Enters; n != 0 {
		t.Errorf("Close entered the kernel %d times", n)
	}
	if !allZero(onDisk(t, to.Path(), 0, 1<<20)) {
		t.Error("Close wrote to the disk")
	}
}

// TestClosed: on a closed queue the verbs return 0 and other calls return errors.
func TestClosed(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	to, i := r.open(fileTarget(t, 1<<20))
	r.check(r.queue.Close())
	_, add := r.queue.Add(to)
	for verb, err := range map[string]error{"Kick": r.queue.Kick(), "Wait": r.queue.Wait(0), "Flush": r.queue.Flush(i, 0), "Add": add, "Remove": r.queue.Remove(i)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	var done [1]FlushResult
	if n := r.queue.Flushed(done[:]); n != 0 || r.queue.FD() != -1 {
		t.Errorf("Flushed gave %d, FD %d", n, r.queue.FD())
	}
	r.check(r.queue.Close())
}

// TestReuse: queues can be opened and closed on one region again and again, also with writes in
// flight. They leave no descriptors behind.
func TestReuse(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	to, i := r.open(fileTarget(t, 1<<20))
	before := openFiles(t)
	for k := range uint64(50) {
		fs := r.take(16)
		for j, f := range fs {
			r.fill(r.at(f, i, uint64(j)*4096), k)
		}
		r.queue.FD()
		r.queue.Send(fs)
		r.check(r.queue.Kick())
		r.check(r.queue.Close())
		if n := r.hands.Held() + r.queue.holder.Held(); n != 0 {
			t.Fatalf("round %d: %d frames were not given back", k, n)
		}
		r.reopen(Config{})
		i = r.add(to)
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	testenv.Must(t, err)
	return len(names)
}

// TestNotReaped: no completion is lost if the caller does not reap. Without the limit on
// operations, they would exceed the kernel's queue.
func TestNotReaped(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{Depth: 8})
	_, i := r.open(fileTarget(t, 1<<20))
	fs := r.take(64)
	for k, f := range fs {
		r.at(f, i, uint64(k)*4096)
	}
	if n := r.queue.Send(fs); n != 8 {
		t.Errorf("Send took %d frames, the depth is 8", n)
	}
	for n := 0; n < MaxFlushes; n++ {
		r.check(r.queue.Flush(i, uint64(n)))
	}
	if err := r.queue.Flush(i, 0); !errors.Is(err, ErrBusy) {
		t.Errorf("one flush too many: %v", err)
	}
	for range 100 {
		r.check(r.queue.Wait(time.Millisecond))
		if n := r.queue.Send(fs[8:]); n != 0 {
			t.Fatal("Send took more without Reap")
		}
	}
	if n := r.queue.ring.cq.overflow.Load(); n != 0 {
		t.Errorf("%d completions overflowed", n)
	}
	if n := len(r.collect(8, r.queue.Reap)); n != 8 {
		t.Errorf("%d frames came back", n)
	}
	tokens := make(map[uint64]bool)
	var done [MaxFlushes]FlushResult
	testenv.Wait(t, 10*time.Second, "all flushes", func() bool {
		r.check(r.queue.Kick())
		for _, d := range done[:r.queue.Flushed(done[:])] {
			r.check(d.Err)
			tokens[d.Token] = true
		}
		return len(tokens) == MaxFlushes
	})
	r.hands.Give(fs)
}

// TestRemove: targets can be removed and added while the queue runs.
func TestRemove(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{Targets: 2})
	ice := newIce(t)
	first, a := r.open(ice.config)
	_, b := r.open(fileTarget(t, 1<<20))
	third, err := OpenTarget(fileTarget(t, 1<<20))
	testenv.Must(t, err)
	defer third.Close()
	if _, err := r.queue.Add(third); err == nil {
		t.Error("a third target fits into two places")
	}
	ice.freeze()
	defer ice.thaw()
	fs := r.take(2)
	r.fill(fs[1], 3)
	r.queue.Send([]umem.Frame{r.at(fs[0], a, 0)})
	r.check(r.queue.Kick())
	if err := r.queue.Remove(a); err == nil {
		t.Error("a target with a write in flight was removed")
	}
	ice.thaw()
	r.collect(1, r.queue.Reap)
	r.check(r.queue.Remove(a))
	if err := r.queue.Remove(a); err == nil {
		t.Error("it was removed twice")
	}
	if back := r.moveAny([]umem.Frame{r.at(fs[0], a, 0)}, r.queue.Send, r.queue.Reap); !errors.Is(back[0].Err(), unix.EBADF) {
		t.Errorf("a removed target: %v", back[0].Err())
	}
	if i, err := r.queue.Add(third); err != nil || i != a {
		t.Fatalf("the free place: %d, %v", i, err)
	}
	r.check(third.Close()) // the queue keeps it open
	r.write([]umem.Frame{r.at(fs[1], a, 0)})
	if !bytes.Equal(onDisk(t, third.Path(), 0, 4096), r.region.Bytes(fs[1])) {
		t.Error("the new target did not get the bytes")
	}
	r.check(r.queue.Remove(a))
	r.places[first] = r.add(first)
	_ = b
	r.hands.Give(fs)
}

// TestFlushNothing: Flush refuses targets that do not exist.
func TestFlushNothing(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	for _, i := range []uint32{0, 1 << 20} {
		if err := r.queue.Flush(i, 0); !errors.Is(err, ErrNoTarget) {
			t.Errorf("flush of target %d: %v", i, err)
		}
	}
}
