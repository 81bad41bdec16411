package nvmet

import (
	"testing"

	"github.com/unifiedd/unifiedd/umem"
)

// TestPileInDebt: one session holds all buffers but one when other sessions come into use. They get
// the next free buffers before it gets another one, and in the end all buffers are back.
func TestPileInDebt(t *testing.T) {
	p := bufferPool{free: make([]umem.Frame, 5), held: make([]int, 3)}
	take := func(seat int, want bool) {
		t.Helper()
		if _, ok := p.take(seat); ok != want {
			t.Errorf("seat %d gets a buffer: %v, with %d free and %d seats without one", seat, ok, len(p.free), p.waiting)
		}
	}
	p.open()
	for range 4 {
		take(0, true)
	}
	p.open()
	p.open()
	take(0, false)
	take(1, true)
	take(2, false)
	p.give(0, umem.Frame{})
	take(0, false)
	take(1, false)
	take(2, true)
	p.give(0, umem.Frame{})
	take(0, true)
	for seat, n := range []int{4 - 1, 1, 1} {
		if p.held[seat] != n {
			t.Errorf("seat %d has %d buffers", seat, p.held[seat])
		}
		for range n {
			p.give(seat, umem.Frame{})
		}
		p.shut()
	}
	if len(p.free) != 5 || p.waiting != 0 {
		t.Errorf("in the end %d are free, with %d seats without one", len(p.free), p.waiting)
	}
}
