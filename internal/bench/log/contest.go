package log

import (
	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
)

// bar is the most of ours relative to theirs at received, for the latency and for the processors' time.
const bar = 0.5

// The programs of a contest, by index. Only some cases have the last one: the packets alone, or the
// disk alone.
const (
	ours = iota
	theirs
	alone
)

// programs are the programs of a contest.
type programs struct {
	ours, theirs, packets, disk contest.Run[sample]
}

// newContest compares ours with theirs. For a durable log it also compares ours with the disk alone. If the
// work has a floor (hasFloor), it also compares our packets alone with theirs.
func newContest(w work, p programs) *contest.Contest[sample] {
	held := 0.0
	if w.durability == received {
		held = bar
	}
	typical := func(s sample) float64 { return s.typical / 1e3 }
	machine := func(s sample) float64 { return float64(s.machine) / 1e3 / s.records }
	rate := func(s sample) float64 { return s.records / s.seconds / 1e3 }
	c := &contest.Contest[sample]{Name: w.name(), Programs: []contest.Run[sample]{p.ours, p.theirs}, Measures: []contest.Measure[sample]{
		{Metric: "latency, median", Unit: "µs", Better: bench.Less, Bar: held, Theirs: theirs, Of: typical},
		{Metric: "latency, 99%", Unit: "µs", Better: bench.Less, Theirs: theirs, Of: func(s sample) float64 { return s.tail / 1e3 }},
		{Metric: "whole machine", Unit: "µs/record", Better: bench.Less, Bar: held, Theirs: theirs, Of: machine},
		{Metric: "both ends' processes", Unit: "µs/record", Better: bench.Less, Theirs: theirs, Of: func(s sample) float64 { return float64(s.spent) / 1e3 / s.records }},
		{Metric: "appends", Unit: "k/s", Better: bench.More, Theirs: theirs, Of: rate},
	}}
	if w.durability == durable {
		c.Programs = append(c.Programs, p.disk)
		c.Measures = append(c.Measures,
			contest.Measure[sample]{Metric: "latency; the disk's write and flush", Unit: "µs", Better: bench.Less, Theirs: alone, Of: typical},
			contest.Measure[sample]{Metric: "appends; the disk, one of each client a flush", Unit: "k/s", Better: bench.More, Theirs: alone, Of: rate})
	}
	if w.hasFloor() {
		c.Programs = append(c.Programs, p.packets)
		c.Measures = append(c.Measures,
			contest.Measure[sample]{Metric: "latency, median; the packets alone", Unit: "µs", Better: bench.Less, Ours: alone, Theirs: theirs, Of: typical},
			contest.Measure[sample]{Metric: "whole machine; the packets alone", Unit: "µs/record", Better: bench.Less, Ours: alone, Theirs: theirs, Of: machine})
	}
	return c
}
