package umem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// twoSlices is a region with slices of two programs, one of which only reads.
var twoSlices = Config{
	Size: 4 << 20, ExtentSize: 1 << 20, Extents: 2, Control: 1 << 20,
	Slices: []SliceConfig{{Name: "strategy", In: 4 << 20, Out: 2 << 20}, {Name: "risk", In: 2 << 20}},
}

// openSlices opens twoSlices on each kind of pages that every machine has.
func openSlices(t *testing.T, test func(t *testing.T, r *Region)) {
	testenv.Leaks(t)
	t.Run("ordinary", func(t *testing.T) { test(t, openOrdinary(t, twoSlices)) })
	t.Run("huge", func(t *testing.T) {
		c := twoSlices
		c.Size += 6 << 20 // openHuge reserves pages for the size and the control area
		testenv.HugePages(t, c.Size+hugePage+6<<20)
		test(t, open(t, c))
	})
}

// TestSlices: the frames of a slice have a pool of their own. They are part of the region for every count, and go
// back to their pool on every path.
func TestSlices(t *testing.T) {
	openSlices(t, func(t *testing.T, r *Region) {
		s, risk := r.Slice("strategy"), r.Slice("risk")
		if len(r.Slices()) != 2 || s.In.Size() != 4<<20 || s.Out.Size() != 2<<20 || risk.In.Size() != 2<<20 || risk.Out != nil || r.Slice("nobody") != nil {
			t.Fatalf("slices: %+v %+v", s, risk)
		}
		if s.Out.Base() != s.In.Base()+s.In.Size() || risk.In.Base() != s.Out.Base()+s.Out.Size() || r.Size() != risk.In.Base()+risk.In.Size() {
			t.Errorf("parts at %d, %d and %d of %d bytes", s.In.Base(), s.Out.Base(), risk.In.Base(), r.Size())
		}
		b := r.NewBook("test")
		h, other := newHolder(t, b, OwnerWorker), newHolder(t, b, OwnerAttached)
		ordinary := make([]Frame, r.Frames())
		n := h.Take(ordinary)
		for _, f := range ordinary[:n] {
			if s.In.Contains(f.Addr) || s.Out.Contains(f.Addr) || risk.In.Contains(f.Addr) {
				t.Fatalf("a frame of the region is at %#x, in a slice", f.Addr)
			}
		}
		in := make([]Frame, 2000)
		if got := h.TakeFrom(s.In, in); got != 1024 {
			t.Fatalf("took %d frames of 4 MiB", got)
		}
		in = in[:1024]
		for _, f := range in {
			if !s.In.Contains(f.Addr) {
				t.Fatalf("a frame of the slice is at %#x", f.Addr)
			}
		}
		h.PassTo(other, in)
		r.Side(in[1023]).Token = 7
		b.Publish()
		if c := audit(t, r); c.Of(OwnerAttached) != 1024 || c.Sum() != r.Frames() || r.Snapshot() != c {
			t.Errorf("owners: %v, published %v", c, r.Snapshot())
		}
		other.PassTo(h, in[:512])
		h.Give(in[:512])
		other.Close() // recalls the others
		h.Give(ordinary[:n])
		if c := audit(t, r); c.Of(OwnerPool) != r.Frames() {
			t.Errorf("owners at the end: %v", c)
		}
		again := make([]Frame, 2000)
		if got := h.TakeFrom(s.In, again); got != 1024 {
			t.Errorf("took %d frames again", got)
		}
		h.Close()
		testenv.Check(t, b.Close())
	})
}

// TestSliceFiles: a program that maps the memfds sees what the region has, and the region sees what it writes.
// What it may only read it can neither map to write, nor write, nor open anew, nor empty, and it can change the
// size of neither.
func TestSliceFiles(t *testing.T) {
	openSlices(t, func(t *testing.T, r *Region) {
		s := r.Slice("strategy")
		in, err := unix.Mmap(int(s.In.File().Fd()), 0, int(s.In.Size()), unix.PROT_READ, unix.MAP_SHARED)
		testenv.Must(t, err)
		defer unix.Munmap(in)
		out, err := unix.Mmap(int(s.Out.File().Fd()), 0, int(s.Out.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		testenv.Must(t, err)
		defer unix.Munmap(out)
		last := int(s.In.Size()) - 8
		copy(r.At(s.In.Base()+uint64(last), 8), "from us!")
		copy(out[4096:], "from it!")
		copy(out[8192:], "is gone!")
		if string(in[last:]) != "from us!" || string(r.At(s.Out.Base()+4096, 8)) != "from it!" {
			t.Errorf("the program reads %q, the region %q", in[last:], r.At(s.Out.Base()+4096, 8))
		}
		if err := unix.Mprotect(in, unix.PROT_READ|unix.PROT_WRITE); err == nil {
			t.Error("the mapping can be made writable")
		}
		attack := func(f *os.File, writable bool) {
			fd := int(f.Fd())
			for name, err := range map[string]error{
				"shrink": unix.Ftruncate(fd, 4096), "grow": unix.Ftruncate(fd, 64<<20),
				"more seals": seal(fd, unix.F_SEAL_WRITE), "punch": unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, hugePage),
				"write": func() error { _, err := unix.Pwrite(fd, []byte("x"), 0); return err }(),
			} {
				if err == nil && !(writable && (name == "punch" || name == "write")) {
					t.Errorf("%s: %s is possible", f.Name(), name)
				}
			}
		}
		attack(s.In.File(), false)
		anew, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", s.In.File().Fd()), os.O_RDWR, 0)
		if err == nil { // by root or the daemon's own user: the seals hold all the same
			attack(anew, false)
			if _, err := unix.Mmap(int(anew.Fd()), 0, int(s.In.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
				t.Errorf("what is read-only can be mapped to write: %v", err)
			}
			anew.Close()
		}
		attack(s.Out.File(), true)
		copy(r.At(s.Out.Base()+4096, 8), "still us")
		if string(out[4096:4104]) != "still us" {
			t.Errorf("after its pages were taken, the program reads %q", out[4096:4104])
		}
		if got := r.At(s.Out.Base()+8192, 8); !bytes.Equal(got, make([]byte, 8)) {
			t.Errorf("after its pages were taken, memory has %q", got)
		}
	})
}

func seal(fd, seals int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return err
}

// TestSliceErrors: slices that cannot be are refused by name.
func TestSliceErrors(t *testing.T) {
	for _, c := range []struct {
		slices []SliceConfig
		want   string
	}{
		{[]SliceConfig{{Name: "a", In: 1}, {Name: "a", Out: 1}}, `slice "a" is there twice`},
		{[]SliceConfig{{Name: "a", In: maxSize}}, "at most"},
		{[]SliceConfig{{Name: "a", Out: 1 << 63}}, "at most"},
		{make([]SliceConfig, MaxSlices+1), fmt.Sprintf("%d slices", MaxSlices+1)},
	} {
		_, err := Open(Config{Size: 4 << 20, Pages: Ordinary, Slices: c.slices})
		wantError(t, err, c.want)
	}
}

// TestAllocatedSlices: memory that was allocated before has the parts on huge pages.
func TestAllocatedSlices(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	m, err := Allocate(twoSlices)
	testenv.Must(t, err)
	c := twoSlices
	c.Memory = m
	r := open(t, c)
	if len(m.Files()) != 0 { // Open has released the memory
		t.Errorf("%d files are still open", len(m.Files()))
	}
	copy(r.At(r.Slice("risk").In.Base(), 5), "hello")
	audit(t, r)
	t.Cleanup(func() {
		testenv.Check(t, m.GiveBack())
	})
}
