package xdp

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPromiscuous: promiscuous mode lasts as long as the interface is open.
func TestPromiscuous(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	on := func() bool {
		return strings.Contains(pair.B.Run(t, "ip", "-d", "link", "show", pair.B.Ifname), "promiscuity 1")
	}
	for _, wanted := range []bool{true, false} {
		g := newRig(t, small())
		i := g.open(&pair.B, Config{Direction: Receive, Promiscuous: wanted})
		if on() != wanted {
			t.Errorf("promiscuous mode: %v, wanted %v", on(), wanted)
		}
		testenv.Must(t, i.Close())
		if on() {
			t.Error("the interface was left in promiscuous mode")
		}
	}
}
