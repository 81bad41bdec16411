package porttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// checkAllocations passes the same frames again and again, and checks that no verb allocates.
func checkAllocations(t testing.TB, open Opener) {
	g := newRig(t, open)
	c := newCycle(g)
	if !c.run(8) { // everything that is made lazily is made now
		g.Fatal(c.stuck())
	}
	const rounds = 64
	fewest := ^uint64(0)
	for range 5 { // allocations of the runtime itself do not repeat
		ok := true
		fewest = min(fewest, uint64(testing.AllocsPerRun(1, func() { ok = ok && c.run(rounds) })))
		if !ok {
			g.Fatal(c.stuck())
		}
		if fewest == 0 {
			break
		}
	}
	if fewest > 0 {
		g.Fatalf("the verbs allocated at least %d times in %d rounds of %d frames", fewest, rounds, len(c.full))
	}
	c.putBack()
	g.finish()
}

// cycle circulates frames: frames that were sent come back and are sent again.
type cycle struct {
	g           *rig
	fullParcels []parcel
	full        []umem.Frame // frames sent in each round
	empty       []umem.Frame // frames supplied in each round
	in          []umem.Frame // room for what is received
	out         []umem.Frame // room for what is reaped
	reaped      int
	arrived     int
}

func newCycle(g *rig) *cycle {
	c := &cycle{g: g}
	var msgs []parcel
	for range min(16, g.Window) {
		msgs = append(msgs, g.compose()...)
	}
	c.fullParcels, c.full = msgs, framesOf(msgs)
	c.empty = framesOf(c.emptiesFor(msgs))
	c.in, c.out = make([]umem.Frame, Spare), make([]umem.Frame, Spare)
	return c
}

// emptiesFor returns as many frames as the messages need.
func (c *cycle) emptiesFor(msgs []parcel) []parcel {
	need, ps := 0, []parcel(nil)
	for _, p := range msgs {
		if p.frame.Continues() {
			continue
		}
		need += c.g.landing(p.msg.size())
		if c.g.Stored {
			ps = append(ps, c.g.request(p.msg)...)
		}
	}
	if c.g.Stored {
		return ps
	}
	return c.g.empties(need)
}

// run runs n rounds.
func (c *cycle) run(n int) bool {
	for range n {
		if !c.round() {
			return false
		}
	}
	return true
}

func (c *cycle) round() bool {
	c.reaped, c.arrived = 0, 0
	if !c.g.Stored && !c.put(c.empty, c.g.Receiver) {
		return false
	}
	if !c.send() {
		return false
	}
	if !c.g.Stored {
		return c.take(len(c.full), len(c.empty))
	}
	return c.take(len(c.full), 0) && c.put(c.empty, c.g.Receiver) && c.take(len(c.full), len(c.empty))
}

func (c *cycle) put(fs []umem.Frame, p umem.Port) bool { return p.Supply(fs) == len(fs) }

func (c *cycle) send() bool { return c.g.Sender.Send(c.full) == len(c.full) }

// take kicks and collects until the given numbers of frames have come back. The next round supplies
// the received ones again.
func (c *cycle) take(reaped, arrived int) bool {
	deadline := time.Now().Add(c.g.Timeout)
	for c.reaped < reaped || c.arrived < arrived {
		if c.g.Sender.Kick() != nil || c.g.Receiver.Kick() != nil || time.Now().After(deadline) {
			return false
		}
		c.reaped += c.g.Sender.Reap(c.out)
		n := c.g.Receiver.Recv(c.in)
		for _, f := range c.in[:n] {
			c.recycle(f)
		}
		time.Sleep(10 * time.Microsecond)
	}
	return true
}

// recycle makes a received frame the next to be supplied.
func (c *cycle) recycle(f umem.Frame) {
	if !c.g.Stored {
		start, room := c.g.reg.Start(f)
		c.empty[c.arrived] = umem.Frame{Addr: start, Len: uint32(room)}
	}
	c.arrived++
}

func (c *cycle) stuck() string {
	return fmt.Sprintf("a round of %d frames sent and %d supplied stopped after %d reaped and %d received",
		len(c.full), len(c.empty), c.reaped, c.arrived)
}

// putBack returns the frames to the worker.
func (c *cycle) putBack() {
	c.g.putBack(c.fullParcels)
	for _, f := range c.empty {
		start, _ := c.g.reg.Start(f)
		c.g.keep(start)
		c.g.lent--
	}
}
