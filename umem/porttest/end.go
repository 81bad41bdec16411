package porttest

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// checkClose closes ports that contain frames of every kind.
func checkClose(t testing.TB, open Opener) {
	g := newRig(t, open)
	g.exchange(min(8, g.Window))
	g.fillUp()
	before := g.pooled()
	inside := int64(len(g.sent) + len(g.supplied) + g.Own)
	g.closePorts()
	if came := g.pooled() - before; came != inside {
		g.Fatalf("Close gave %d of %d frames inside to the pool", came, inside)
	}
	g.audit()
	g.checkClosed()
	g.closePorts()
	g.checkClosed()
	g.forget()
	g.finish()
}

// fillUp leaves frames in the ports: waiting to be filled, in flight, full and drained.
func (g *rig) fillUp() {
	g.Helper()
	g.post(g.batch(min(8, g.Window)))
	g.kick()
	if g.Stored {
		g.until("reap one message", func() bool { g.reap(1); return len(g.stored) > 0 })
		g.supplyAll(g.request(g.stored[0]))
		g.kick()
	} else {
		room := g.Receiver.Limits().Supply - len(g.supplied)
		g.supplyAll(g.empties(min(room, Spare/4)))
		g.recv(1)
	}
	if room := g.Sender.Limits().Send - len(g.sent); room > 0 {
		g.sendAll(g.single())
	}
}

// pooled returns how many frames are in the pool according to the records.
func (g *rig) pooled() int64 {
	g.Helper()
	c, err := g.reg.Audit()
	if err != nil {
		g.Fatal(err)
	}
	return c.Of(umem.OwnerPool)
}

// checkClosed offers frames to closed ports and asks them for some.
func (g *rig) checkClosed() {
	g.Helper()
	for _, p := range []umem.Port{g.Sender, g.Receiver} {
		empty, full := g.empties(1), g.single()
		calls := map[string]int{
			"Supply": g.hand2port("Supply", p.Supply, empty),
			"Send":   g.hand2port("Send", p.Send, full),
			"Recv":   len(g.port2hand("Recv", p.Recv, 1)),
			"Reap":   len(g.port2hand("Reap", p.Reap, 1)),
		}
		for verb, n := range calls {
			if n != 0 {
				g.Fatalf("%s returned %d after Close", verb, n)
			}
		}
		p.Kick() // may report that the device is gone, but must not panic
		g.putBack(empty)
		g.putBack(full)
	}
	g.audit()
}

// checkReopen closes ports in use and opens the device again at once.
func checkReopen(t testing.TB, open Opener) {
	g := newRig(t, open)
	for range 4 {
		g.exchange(min(8, g.Window))
		g.fillUp()
		g.closePorts()
		g.forget()
		g.reopen(t)
	}
	g.exchange(min(8, g.Window))
	g.finish()
}

func (g *rig) reopen(t testing.TB) {
	g.Helper()
	begin := time.Now()
	g.Reopen(t)
	if took := time.Since(begin); took > g.Timeout {
		g.Fatalf("the device took %v to open again", took)
	}
	if err := g.complete(); err != nil {
		g.Fatal(err)
	}
	g.stock()
}
