//go:build invariants || race

package umem

import (
	"bytes"
	"testing"
)

func TestPassingWhatOneDoesNotOwn(t *testing.T) {
	r, b, worker, device := worldOf(t, Config{Size: 4 << 20, Extents: 1})
	fs := take(t, worker, 2)
	worker.PassTo(device, fs)
	mustPanic(t, "frame at 0x1000 belongs to book xdp, not to book worker", func() { worker.PassTo(device, fs[1:]) })
	mustPanic(t, "frame at 0x0 belongs to book xdp, not to book worker", func() { worker.Give(fs[:1]) })
	mustPanic(t, "frame at 0x5000 belongs to the pool, not to book worker", func() { worker.PassTo(device, []Frame{{Addr: 0x5000}}) })
	ext := takeExtents(t, worker, 1)
	mustPanic(t, "frame at 0x300200 belongs to book worker, not to book xdp", func() { device.Give([]Frame{{Addr: ext[0].Addr + 512}}) })
	mustPanic(t, "frame at 0x0 belongs to book worker, not to book xdp", func() { device.PassTo(worker, []Frame{fs[0], fs[0]}) })
	other := newHolder(t, r.NewBook("elsewhere"), OwnerWorker)
	mustPanic(t, "book xdp of book book passes frames to elsewhere worker of book elsewhere", func() { device.PassTo(other, fs[1:]) })
	if b.Region() != r {
		t.Error("the book lost its region")
	}
}

func TestGivingTwice(t *testing.T) {
	_, _, worker, _ := worldOf(t, Config{Size: 2 << 20})
	fs := take(t, worker, 1)
	worker.Give(fs)
	mustPanic(t, "frame at 0x0 belongs to the pool, not to book worker", func() { worker.Give(fs) })
}

// TestLockSurvivesPanic: a panic under the pool's lock releases the lock.
func TestLockSurvivesPanic(t *testing.T) {
	r, _, worker, _ := worldOf(t, Config{Size: 2 << 20})
	mustPanic(t, "belongs to the pool", func() { worker.Give([]Frame{{Addr: 0}}) })
	r.Snapshot()
}

func TestReleasedFramesArePoisoned(t *testing.T) {
	r, _, worker, device := worldOf(t, Config{Size: 4 << 20, Extents: 2})
	neighbour := take(t, worker, 1)
	r.Bytes(neighbour[0])[4095] = 7
	fs := take(t, worker, 2)
	r.Bytes(fs[1])[0] = 9
	worker.Give([]Frame{{Addr: fs[0].Addr + 100, Len: 3}})
	wantAll(t, r.Bytes(fs[0]), 0xCC)
	if r.Bytes(neighbour[0])[4095] != 7 || r.Bytes(fs[1])[0] != 9 {
		t.Error("a neighbour was overwritten")
	}
	ext := takeExtents(t, worker, 1)
	worker.PassTo(device, ext)
	device.Recall()
	wantAll(t, r.Bytes(ext[0]), 0xCC)
}

func wantAll(t *testing.T, b []byte, c byte) {
	t.Helper()
	if n := bytes.Count(b, []byte{c}); n != len(b) {
		t.Errorf("%d of %d bytes are %#x", n, len(b), c)
	}
}

// TestProgramsFramesAreNotPoisoned: a program may still read what it wrote into a frame that the daemon has released.
func TestProgramsFramesAreNotPoisoned(t *testing.T) {
	r, _, worker, _ := worldOf(t, Config{Size: 2 << 20, Slices: []SliceConfig{{Name: "strategy", In: 2 << 20, Out: 2 << 20}}})
	part := r.Slices()[0].Out
	fs := make([]Frame, 1)
	if worker.TakeFrom(part, fs) != 1 {
		t.Fatal("there is no frame")
	}
	r.Bytes(fs[0])[7] = 9
	worker.Give(fs)
	if b := r.Bytes(fs[0]); b[7] != 9 || b[0] == 0xCC {
		t.Errorf("the memory of the program begins with % x", b[:8])
	}
}
