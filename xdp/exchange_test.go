package xdp

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCheckWhileExchanging checks the interface while its filter is exchanged: the
// new program is ours, from its first moment on.
func TestCheckWhileExchanging(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			if err := i.SetFilter(nil); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		if err := i.Check(); err != nil {
			t.Error(err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestQueuesChange gives the interface more queues and with them the driver more
// counters: that is no error, and what is counted stays right.
func TestQueuesChange(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 4})
	testenv.Tool(t, "ethtool")
	pair.B.Run(t, "ethtool", "-L", pair.B.Ifname, "rx", "2")
	pair.A.Run(t, "ethtool", "-L", pair.A.Ifname, "tx", "1") // else a hash that differs from boot to boot chooses the queue
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 64)
	g.start(i)
	pair.B.Run(t, "ethtool", "-L", pair.B.Ifname, "rx", "4")
	if err := i.Check(); err != nil {
		t.Error(err)
	}
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 7, 300), testenv.SendOptions{})
	g.receive(p, 7)
	if l := g.balanced(i, 7); l.Of(Received) != 7 {
		t.Errorf("ledger:%s", show(l))
	}
}
