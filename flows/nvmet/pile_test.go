package nvmet

import (
	"testing"

	"github.com/unifiedd/unifiedd/umem"
)

// TestPileInDebt: sessions that are taken when another has all buffers but one have the next ones before it, and in the end all are there.
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
