package umem

import (
	"errors"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// openControl is a region with a control area and nothing else of note.
func openControl(t testing.TB, control uint64) *Region {
	t.Helper()
	testenv.HugePages(t, 2<<20+control)
	r, err := Open(Config{Size: 2 << 20, Control: control})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestControlPieces takes and releases pieces at random and looks for any that
// overlap, or a gap that was passed over.
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
