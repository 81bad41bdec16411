package umem

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestAllocateIsExact: if more pages are needed than are free, on the machine or on node 0,
// Allocate adds exactly those, and GiveBack removes exactly those. A second GiveBack does nothing.
// It counts all huge pages of the machine, which other programs change outside of the lab guest.
func TestAllocateIsExact(t *testing.T) {
	labenv.Guest(t)
	node := 0
	for _, on := range []*int{nil, &node} {
		free, before := mustFree(t, -1)
		m := mustAllocate(t, Config{Size: (free+3)*hugePage - 1, Node: on})
		_, during := mustFree(t, -1)
		for range 2 {
			testenv.Check(t, m.GiveBack())
		}
		if _, after := mustFree(t, -1); during != before+3 || after != before {
			t.Errorf("on a node %v: of %d pages and 3 there were %d, and %d remain", on != nil, before, during, after)
		}
	}
}
