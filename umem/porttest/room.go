package porttest

import "testing"

// checkSupplyRoom offers more empty frames than the port may hold.
func checkSupplyRoom(t testing.TB, open Opener) {
	g := newRig(t, open)
	limit := g.Receiver.Limits().Supply
	var ps []parcel
	if g.Stored {
		g.exchange(Slots)
		ps = g.requests(limit + Spare/2)
	} else {
		ps = g.empties(limit + Spare/2)
	}
	ps = g.offer(ps, g.supply)
	if len(g.supplied) != limit {
		g.Fatalf("Supply took %d frames in all, an empty port takes %d", len(g.supplied), limit)
	}
	g.putBack(ps)
	if g.Stored {
		g.settle()
	} else {
		g.exchange(min(8, g.Window))
	}
	g.finish()
}

// checkSendRoom sends more than the port may hold without reaping.
func checkSendRoom(t testing.TB, open Opener) {
	g := newRig(t, open)
	g.lossy = true
	limit := g.Sender.Limits().Send
	var ps []parcel
	for len(ps) < limit+Spare/2 {
		ps = append(ps, g.single()...)
	}
	ps = g.offer(ps, g.send)
	if len(g.sent) != limit {
		g.Fatalf("Send took %d frames in all, an empty port takes %d", len(g.sent), limit)
	}
	g.putBack(ps)
	g.drain()
	g.finish()
}

// offer passes frames until the port takes no more, and returns the rest.
func (g *rig) offer(ps []parcel, verb func([]parcel) int) []parcel {
	g.Helper()
	for tries := 0; tries < 3 && len(ps) > 0; tries++ {
		n := verb(ps)
		ps = ps[n:]
		g.audit()
		if n > 0 {
			tries = 0
		}
		g.kick()
	}
	return ps
}

// drain empties the sender. The receiver may lose messages.
func (g *rig) drain() {
	g.Helper()
	g.until("reap everything sent", func() bool {
		if !g.Stored {
			room := g.Receiver.Limits().Supply - len(g.supplied)
			more := g.empties(max(0, min(room, len(g.hand)-1)))
			g.putBack(more[g.supply(more):])
		}
		g.recv(Spare)
		g.reap(Spare)
		return len(g.sent) == 0
	})
}

// single composes the next message that is one frame.
func (g *rig) single() []parcel {
	for {
		m := message{g.Link, g.next}
		if len(m.cuts()) == 1 {
			return g.compose()
		}
		g.never[g.next] = true
		g.next++
	}
}

// requests makes n frames that read messages of the last Slots again.
func (g *rig) requests(n int) []parcel {
	var ps []parcel
	for i := uint64(0); len(ps) < n; i++ {
		ps = append(ps, g.request(message{g.Link, g.next - Slots + i%Slots})...)
	}
	g.putBack(ps[n:])
	return ps[:n]
}

// checkWholeMessages offers chains that do not fit or are incomplete.
func checkWholeMessages(t testing.TB, open Opener) {
	g := newRig(t, open)
	if g.chain < 2 {
		g.finish()
		return
	}
	g.offerHalves()
	g.offerIntoLastRoom()
	g.finish()
}

// offerHalves offers a chain without its end: alone, and after a message.
func (g *rig) offerHalves() {
	g.Helper()
	half := g.chained()
	half = g.putBackFrom(half, len(half)-1)
	if n := g.send(half); n != 0 {
		g.Fatalf("Send took %d frames of a chain whose end it was not given", n)
	}
	g.audit()
	g.never[half[0].msg.seq] = true
	one := g.single()
	if !g.Stored {
		g.provide(one)
	}
	if n := g.send(append(one, half...)); n != len(one) {
		g.Fatalf("Send took %d frames of a message of %d and a chain without its end", n, len(one))
	}
	g.audit()
	g.putBack(half)
	g.settle()
}

// offerIntoLastRoom offers a chain of which all frames but the last would fit.
func (g *rig) offerIntoLastRoom() {
	g.Helper()
	g.lossy = true
	chain := g.chained()
	var fill []parcel
	for len(fill) < g.Sender.Limits().Send-len(chain)+1 {
		fill = append(fill, g.single()...)
	}
	if rest := g.offer(fill, g.send); len(rest) > 0 {
		g.Fatalf("Send left %d of %d frames, its limit is %d", len(rest), len(fill), g.Sender.Limits().Send)
	}
	if n := g.send(chain); n != 0 {
		g.Fatalf("Send took %d frames of a chain of %d, with room for %d", n, len(chain), len(chain)-1)
	}
	g.audit()
	g.putBack(chain)
	g.drain()
}

// chained composes the next message that is several frames.
func (g *rig) chained() []parcel {
	for {
		m := message{g.Link, g.next}
		if len(m.cuts()) > 1 {
			return g.compose()
		}
		g.never[g.next] = true
		g.next++
	}
}

// putBackFrom keeps the first n of ps, and puts the others back.
func (g *rig) putBackFrom(ps []parcel, n int) []parcel {
	g.putBack(ps[n:])
	return ps[:n]
}
