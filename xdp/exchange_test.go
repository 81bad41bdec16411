package xdp

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCheckWhileExchanging: while the filter is exchanged, Check accepts the new program from its
// first moment.
func TestCheckWhileExchanging(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			testenv.Check(t, i.SetFilter(nil))
		}
	}()
	for {
		testenv.Check(t, i.Check())
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestQueuesChange: more queues, and with them more counters of the driver, are not an error, and
// the ledger stays correct.
func TestQueuesChange(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 4})
	testenv.Tool(t, "ethtool")
	pair.B.Run(t, "ethtool", "-L", pair.B.Ifname, "rx", "2")
	pair.A.Run(t, "ethtool", "-L", pair.A.Ifname, "tx", "1") // otherwise a hash that differs at each boot chooses the queue
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 64)
	g.start(i)
	pair.B.Run(t, "ethtool", "-L", pair.B.Ifname, "rx", "4")
	testenv.Check(t, i.Check())
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 7, 300), testenv.SendOptions{})
	g.receive(p, 7)
	if l := g.balanced(i, 7); l.Of(Received) != 7 {
		t.Errorf("ledger:%s", show(l))
	}
}
