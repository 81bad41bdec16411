package network

import (
	"fmt"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// costBar is the most processor time of ours for one of theirs.
const costBar = 1.1

// work is what both programs get to do.
type work struct {
	rate int // packets per second
	size int // bytes of a packet
}

func (w work) name() string {
	return fmt.Sprintf("receive %d packets/s of %d bytes", w.rate, w.size)
}

// contest is one case and what was measured of it so far.
type contest struct {
	work
	cost, waits, machine bench.Comparison
	received, lost       [2]float64 // packets of all rounds, ours and theirs
}

func newContest(w work) *contest {
	c := &contest{work: w,
		cost:    bench.Comparison{Metric: "processor", Unit: "ns/packet", Better: bench.Less, Bar: costBar},
		waits:   bench.Comparison{Metric: "waits", Unit: "/packet", Better: bench.Less},
		machine: bench.Comparison{Metric: "whole machine", Unit: "ns/packet", Better: bench.Less}}
	for _, m := range []*bench.Comparison{&c.cost, &c.waits, &c.machine} {
		m.Case = w.name()
	}
	return c
}

// add notes a pair of runs.
func (c *contest) add(runs [2]run) {
	for k, r := range runs {
		c.received[k] += r.packets
		c.lost[k] += r.lost
	}
	put := func(m *bench.Comparison, of func(run) float64) {
		m.Pairs = append(m.Pairs, bench.Pair{Ours: of(runs[0]), Theirs: of(runs[1])})
	}
	put(&c.cost, func(r run) float64 { return float64(r.cpu) / r.packets })
	put(&c.waits, func(r run) float64 { return r.waits / r.packets })
	put(&c.machine, func(r run) float64 { return float64(r.machine) / r.packets })
}

// note says what was lost.
func (c *contest) note() string {
	return fmt.Sprintf("%s: lost %.0f of %.0f packets, theirs %.0f of %.0f.", c.name(),
		c.lost[0], c.received[0]+c.lost[0], c.lost[1], c.received[1]+c.lost[1])
}
