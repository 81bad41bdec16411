package porttest

import (
	"testing"

	"pgregory.net/rapid"
)

// checkRandom calls the verbs in random order with random slices and compares each result with the
// model. rapid shortens a failing sequence and prints its seed.
func checkRandom(t testing.TB, open Opener) {
	var g *rig
	rapid.Check(t, func(rt *rapid.T) {
		if g == nil {
			g = newRig(t, open)
		}
		run := g
		g = nil // a rig that fails is not used again
		run.reporter = rt
		run.randomly(rt)
		run.reporter = t
		g = run
	})
	if g != nil {
		g.finish()
	}
}

// randomly runs one sequence and leaves nothing in flight.
func (g *rig) randomly(rt *rapid.T) {
	end := g.next + Slots // later messages would overwrite the first
	rt.Repeat(map[string]func(*rapid.T){
		"supply": func(rt *rapid.T) { g.randomSupply(rt) },
		"send":   func(rt *rapid.T) { g.randomSend(rt, end) },
		"half":   func(rt *rapid.T) { g.randomHalf(rt, end) },
		"recv":   func(rt *rapid.T) { g.recv(rapid.IntRange(0, Spare).Draw(rt, "room")) },
		"reap":   func(rt *rapid.T) { g.reap(rapid.IntRange(0, Spare).Draw(rt, "room")) },
		"kick":   func(*rapid.T) { g.kick() },
		"":       func(*rapid.T) { g.count() },
	})
	g.settle()
	g.stored = nil
	g.audit()
}

// randomSupply offers some empty frames, or reads of some stored messages.
func (g *rig) randomSupply(rt *rapid.T) {
	if !g.Stored {
		n := rapid.IntRange(0, min(Spare/2, len(g.hand))).Draw(rt, "frames")
		ps := g.empties(n)
		g.putBack(ps[g.supply(ps):])
		return
	}
	var ps []parcel
	n := rapid.IntRange(0, min(8, len(g.stored))).Draw(rt, "messages")
	for _, m := range g.stored[:n] {
		if len(g.hand) < g.chain {
			break
		}
		ps = append(ps, g.request(m)...)
	}
	g.putBack(ps[g.supply(ps):])
}

// randomSend offers some messages before number end that the device can carry.
func (g *rig) randomSend(rt *rapid.T, end uint64) {
	n := rapid.IntRange(0, 8).Draw(rt, "messages")
	var ps []parcel
	need := g.landed
	for ; n > 0 && g.next < end && len(g.hand) >= g.chain && max(g.flying, len(g.undone))+n <= g.Window; n-- {
		need += g.landing(message{g.Link, g.next}.size())
		if !g.Stored && need > len(g.supplied) {
			break
		}
		ps = append(ps, g.compose()...)
	}
	taken := g.send(ps)
	g.unsend(ps[taken:])
	g.putBack(ps[taken:])
}

// randomHalf offers a chain without its end.
func (g *rig) randomHalf(rt *rapid.T, end uint64) {
	if g.chain < 2 || len(g.hand) < g.chain || g.next+8 > end {
		rt.Skip("no chains")
	}
	half := g.chained()
	half = g.putBackFrom(half, rapid.IntRange(1, len(half)-1).Draw(rt, "frames"))
	if n := g.send(half); n != 0 {
		g.Fatalf("Send took %d frames of a chain whose end it was not given", n)
	}
	g.unsend(half)
	g.putBack(half)
}

// unsend records that messages were composed and will not arrive.
func (g *rig) unsend(ps []parcel) {
	for _, p := range ps {
		g.never[p.msg.seq] = true
	}
}
