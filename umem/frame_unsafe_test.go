package umem

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestFrameIsXDPDesc: Frame has the layout of struct xdp_desc.
func TestFrameIsXDPDesc(t *testing.T) {
	var f Frame
	if unsafe.Sizeof(f) != unsafe.Sizeof(unix.XDPDesc{}) || unsafe.Offsetof(f.Len) != 8 || unsafe.Offsetof(f.Options) != 12 {
		t.Fatalf("Frame has %d bytes, Len at %d, Options at %d", unsafe.Sizeof(f), unsafe.Offsetof(f.Len), unsafe.Offsetof(f.Options))
	}
}

// TestErrorRoundTrip: WithError and Err keep every errno, and change no other bit.
func TestErrorRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Frame{rapid.Uint64().Draw(t, "addr"), rapid.Uint32().Draw(t, "len"), rapid.Uint32().Draw(t, "options")}
		errno := unix.Errno(rapid.Uint32Range(1, errnoMask).Draw(t, "errno"))
		g := f.WithError(errno)
		if g.Addr != f.Addr || g.Len != f.Len || g.Options&KernelOptions != f.Options&KernelOptions {
			t.Fatalf("%+v became %+v", f, g)
		}
		if !errors.Is(g.Err(), errno) || g.Continues() != f.Continues() {
			t.Fatalf("marked with %d, Err is %v; Continues %v became %v", errno, g.Err(), f.Continues(), g.Continues())
		}
		if h := g.WithError(unix.EIO); !errors.Is(h.Err(), unix.EIO) {
			t.Fatalf("marked again with EIO, Err is %v", h.Err())
		}
	})
}

func TestErrOfSoundFrame(t *testing.T) {
	for _, options := range []uint32{0, More, KernelOptions} {
		if err := (Frame{Options: options}).Err(); err != nil {
			t.Errorf("options %#x: %v", options, err)
		}
	}
}

// sink keeps results from being optimised away.
var sink any

func TestErrDoesNotAllocate(t *testing.T) {
	f := Frame{}.WithError(unix.EIO)
	if n := testing.AllocsPerRun(100, func() { sink = f.Err() }); n != 0 {
		t.Errorf("Err allocates %v times", n)
	}
}

func TestWhole(t *testing.T) {
	one, more := Frame{}, Frame{Options: More}
	for _, c := range []struct {
		frames []Frame
		want   int
	}{
		{nil, 0},
		{[]Frame{one}, 1},
		{[]Frame{more}, 0},
		{[]Frame{more, one}, 2},
		{[]Frame{more, more}, 0},
		{[]Frame{one, more}, 1},
		{[]Frame{one, more, one, more, more}, 3},
		{[]Frame{more, more, one, one}, 4},
		{[]Frame{one, one, more}, 2},
	} {
		if got := Whole(c.frames); got != c.want {
			t.Errorf("Whole(%v) = %d, want %d", c.frames, got, c.want)
		}
	}
}
