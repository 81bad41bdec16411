package network

import (
	"fmt"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
)

// costBar is the most processor time of ours relative to theirs.
const costBar = 1.1

// work is the work of both programs.
type work struct {
	rate int // packets per second
	size int // bytes of a packet
}

func (w work) name() string {
	return fmt.Sprintf("receive %d packets/s of %d bytes", w.rate, w.size)
}

// newContest compares the cost of receiving the packets.
func newContest(w work, ours, theirs contest.Run[run]) *contest.Contest[run] {
	return &contest.Contest[run]{Name: w.name(), Programs: []contest.Run[run]{ours, theirs}, Measures: []contest.Measure[run]{
		{Metric: "processor", Unit: "ns/packet", Better: bench.Less, Bar: costBar, Theirs: 1, Of: func(r run) float64 { return float64(r.cpu) / r.packets }},
		{Metric: "waits", Unit: "/packet", Better: bench.Less, Theirs: 1, Of: func(r run) float64 { return r.waits / r.packets }},
		{Metric: "whole machine", Unit: "ns/packet", Better: bench.Less, Theirs: 1, Of: func(r run) float64 { return float64(r.machine) / r.packets }},
	}}
}

// losses describes the packets lost in all rounds.
func losses(c *contest.Contest[run]) string {
	var received, lost [2]float64
	for _, round := range c.Samples {
		for k, r := range round {
			received[k] += r.packets
			lost[k] += r.lost
		}
	}
	return fmt.Sprintf("%s: lost %.0f of %.0f packets, theirs %.0f of %.0f.", c.Name, lost[0], received[0]+lost[0], lost[1], received[1]+lost[1])
}
