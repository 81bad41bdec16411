package xdp

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestNUMACards: the cards of each node receive into a region of that node, with zero copy if the
// kernel grants it.
func TestNUMACards(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab NODES=2 runs this")
	several := len(numa.Nodes()) > 1
	for _, pair := range []*testenv.Pair{labenv.Igb(t), labenv.VirtioNet(t)} {
		for at, e := range []*testenv.End{&pair.A, &pair.B} {
			node := 0
			if several {
				node = at
			}
			from := &pair.A
			if at == 0 {
				from = &pair.B
			}
			t.Run(e.Ifname, func(t *testing.T) {
				g := newRig(t, umem.Config{Size: 16 << 20, Node: &node})
				where, err := g.region.Placement()
				if err != nil || len(where) != 1 || where[node] != g.region.Size() {
					t.Fatalf("the region lies on %v: %v", where, err)
				}
				i := g.open(e, Config{RingSize: 512})
				if got := i.Node(); got != node && (several || got != numa.Unknown) {
					t.Errorf("the card is of node %d, want %d", got, node)
				}
				if got := i.Granted(); got.ZeroCopy != grants(t, e.Ifname) {
					t.Errorf("granted %+v", got)
				}
				for _, p := range i.Ports() {
					g.supply(p, 200)
				}
				g.start(i)
				labenv.Carry(t, pair)
				testenv.SendRaw(t, from, packets(from, e, 50, 1000), testenv.SendOptions{Rate: 500})
				g.worker.Give(g.receiveAny(i, 50))
			})
		}
	}
}
