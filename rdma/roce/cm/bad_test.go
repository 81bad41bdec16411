package cm

import (
	"testing"
)

// TestBadNetwork: even if messages are lost, duplicated or delayed, both sides finally agree on
// which connections exist. Connections that have ended leave nothing behind.
func TestBadNetwork(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	var again, twice uint64
	for seed := range seeds {
		w := newWorld(t, seed, quick)
		w.rates.lose, w.rates.double, w.rates.delay = 20, 20, 30
		w.trouble()
		for _, h := range w.hosts {
			again, twice = again+h.counts.own[resent], twice+h.counts.own[duplicate]
		}
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	if again == 0 || twice == 0 {
		t.Errorf("%d messages were said again, and %d came again: the network is none", again, twice)
	}
}

// trouble makes both hosts open connections and end some of them over a bad network, and end the
// rest over a good one.
func (w *world) trouble() {
	w.Helper()
	var all [2][]*connection
	for range 8 {
		for i, h := range w.hosts {
			if c := h.connect(); c != nil {
				all[i] = append(all[i], c)
			}
			if n := len(h.ends); n > 0 && w.draw(40) == 1 {
				c := h.ends[w.rnd.IntN(n)]
				h.do(func() { h.disconnect(c, nil) })
			}
		}
		w.run(50*millisecond, &all)
	}
	w.run(10000*millisecond, &all)
	w.agree()
	w.rates.lose, w.rates.double, w.rates.delay = 0, 0, 0
	for _, h := range w.hosts {
		for _, c := range h.ends {
			h.do(func() { h.disconnect(c, nil) })
		}
	}
	w.run(20000*millisecond, &all)
	for _, h := range w.hosts {
		if n := len(h.locals) + len(h.remotes) + len(h.pairs) + len(h.timers) + len(h.waits); n != 0 {
			w.Errorf("host %d: %d connections, by the peer's identifier %d, by its queue pair %d, timers %d, waiting %d: all is over", h.number, len(h.locals),
				len(h.remotes), len(h.pairs), len(h.timers), len(h.waits))
		}
	}
}

// agree checks that a connection on one side also exists on the other, with the same numbers.
func (w *world) agree() {
	w.Helper()
	stand := 0
	for _, h := range w.hosts {
		for _, c := range h.locals {
			if c.state != connected {
				if c.state != timeWait {
					w.Errorf("a connection is in state %d when nothing happens any more", c.state)
				}
				continue
			}
			stand++
			o := h.other().locals[c.remote]
			if o == nil || o.state != connected || o.remote != c.local || o.theirs != c.ours || c.theirs != o.ours || o.passive == c.passive {
				w.Errorf("one side is connected with %+v, the other one is not: %+v", c, o)
			}
			if c.peerState.reads != 4 && c.passive || c.peerState.reads != 2 && !c.passive {
				w.Errorf("the peer allows %d READs", c.peerState.reads)
			}
		}
	}
	if stand == 0 {
		w.Error("nothing is connected")
	}
}
