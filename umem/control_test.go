package umem

import (
	"errors"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// openControl opens a small region with a control area.
func openControl(t testing.TB, control uint64) *Region {
	t.Helper()
	testenv.HugePages(t, 2<<20+control)
	r, err := Open(Config{Size: 2 << 20, Control: control})
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, r.Close())
	})
	return r
}

// TestControlPieces: pieces that are taken and released at random never overlap, and no gap that
// fits is left out.
func TestControlPieces(t *testing.T) {
	region := openControl(t, 4<<20)
	page := uint64(os.Getpagesize())
	rapid.Check(t, func(t *rapid.T) {
		var live []*ControlPiece
		used := make(map[uint64]bool)
		mark := func(p *ControlPiece, to bool) {
			for off := p.off; off < p.off+uint64(len(p.mem)); off += page {
				if used[off] == to {
					t.Fatalf("the page at %#x changed hands wrongly", off)
				}
				used[off] = to
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if n := uint64(rapid.IntRange(0, 200).Draw(t, "pages")); n > 0 {
				p, err := region.TakeControl(n * page)
				if errors.Is(err, ErrNoControl) {
					continue
				}
				if first, last := p.off>>21, (p.off+n*page-1)>>21; first != last {
					t.Fatalf("%d pages at %#x lie in two huge pages", n, p.off)
				}
				mark(p, true)
				live = append(live, p)
			} else if len(live) > 0 {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				mark(live[i], false)
				live[i].Release()
				live[i].Release()
				live = append(live[:i], live[i+1:]...)
			}
		}
		for _, p := range live {
			p.Release()
		}
		p, err := region.TakeControl(uint64(len(region.Control())))
		if err != nil {
			t.Fatalf("with nothing taken the whole area is not free: %v", err)
		}
		p.Release()
	})
}

// TestCloseRefusesPieces: Close refuses, and the region stays mapped, while a piece of its control
// area is in use.
func TestCloseRefusesPieces(t *testing.T) {
	testenv.HugePages(t, 4<<20)
	r, err := Open(Config{Size: 2 << 20, Control: 2 << 20})
	testenv.Must(t, err)
	var pieces []*ControlPiece
	for range 2 {
		p, err := r.TakeControl(uint64(os.Getpagesize()))
		testenv.Must(t, err)
		pieces = append(pieces, p)
	}
	refuses := func(want string) {
		t.Helper()
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("closed with pieces of the control area taken: %v", err)
		}
		pieces[0].Memory()[0] = 1 // still mapped
	}
	refuses("taken: 2")
	pieces[1].Release()
	refuses("taken: 1")
	device := r.Register("a device")
	refuses("registered with a device")
	device.Release()
	pieces[0].Abandon()
	testenv.Check(t, r.Close())
	if _, err := r.TakeControl(uint64(os.Getpagesize())); !errors.Is(err, ErrNoControl) {
		t.Errorf("a piece of a closed region: %v", err)
	}
}
