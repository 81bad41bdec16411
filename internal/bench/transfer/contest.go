package transfer

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
)

// The bars.
const (
	rateBar = 1.0 // at least as fast
	costBar = 1.0 // for no more processor time
)

// sample is the result of one copy.
type sample struct {
	bytes float64
	wall  time.Duration
	busy  time.Duration // processor time
}

// newContest compares two ways to copy.
func newContest(name string, ours, theirs contest.Run[sample]) *contest.Contest[sample] {
	return &contest.Contest[sample]{Name: name, Programs: []contest.Run[sample]{ours, theirs}, Measures: []contest.Measure[sample]{
		{Metric: "rate", Unit: "MB/s", Better: bench.More, Bar: rateBar, Theirs: 1, Of: func(s sample) float64 { return s.bytes / s.wall.Seconds() / 1e6 }},
		{Metric: "processors", Unit: "ms for each GB", Better: bench.Less, Bar: costBar, Theirs: 1, Of: func(s sample) float64 { return s.busy.Seconds() * 1e12 / s.bytes }},
	}}
}
