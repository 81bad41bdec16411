package nvme

import (
	"errors"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// openControl is a region with a control area and nothing else of note.
func openControl(t testing.TB, control uint64) *umem.Region {
	t.Helper()
	testenv.HugePages(t, 2<<20+control)
	r, err := umem.Open(umem.Config{Size: 2 << 20, Control: control})
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
		var live []*controlPiece
		used := make(map[uint64]bool)
		mark := func(p *controlPiece, to bool) {
			for off := p.off; off < p.off+uint64(len(p.mem)); off += page {
				if used[off] == to {
					t.Fatalf("the page at %#x changed hands wrongly", off)
				}
				used[off] = to
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if n := uint64(rapid.IntRange(0, 200).Draw(t, "pages")); n > 0 {
				p, err := takeControl(region, n*page)
				if errors.Is(err, errNoControl) {
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
				live[i].release()
				live[i].release()
				live = append(live[:i], live[i+1:]...)
			}
		}
		for _, p := range live {
			p.release()
		}
		p, err := takeControl(region, uint64(len(region.Control())))
		if err != nil {
			t.Fatalf("with nothing taken the whole area is not free: %v", err)
		}
		p.release()
	})
	if len(controls.pieces) != 0 {
		t.Errorf("%d regions are still known", len(controls.pieces))
	}
}

// TestRingsInControl opens queues until the control area is full: the next one
// gets the kernel's memory and says so. A closed one's place is used again.
func TestRingsInControl(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{Depth: 4096 - maxFlushes})
	var more []*Queue
	defer func() {
		for _, q := range more {
			r.check(q.Close())
		}
	}()
	inRegion := func() bool {
		q, err := Open(Config{Worker: r.hands, Name: "another", Depth: 4096 - maxFlushes})
		if err != nil {
			t.Fatal(err)
		}
		more = append(more, q)
		return q.Granted().RingsInRegion
	}
	if !r.queue.Granted().RingsInRegion {
		t.Fatal("the first queue's rings are not in the region")
	}
	for n := 1; inRegion(); n++ {
		if n > 4 {
			t.Fatalf("%d queues of depth 4080 do not fit into 2 MiB", n)
		}
	}
	r.check(more[0].Close())
	more = more[1:]
	if !inRegion() {
		t.Error("the place of a closed queue is not used again")
	}
}
