package rdma

import (
	"context"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
)

// The bars.
const (
	latencyBar   = 1.05
	bandwidthBar = 0.95
)

// NewContest compares the typical latency of two programs, or the average bandwidth.
func NewContest(w Work, p Place, ours, theirs *Program) *contest.Contest[float64] {
	m := contest.Measure[float64]{Metric: "typical", Unit: "µs", Better: bench.Less, Bar: latencyBar, Theirs: 1, Of: func(v float64) float64 { return v }}
	if w.Bandwidth {
		m.Metric, m.Unit, m.Better, m.Bar = "average", "MB/s", bench.More, bandwidthBar
	}
	c := &contest.Contest[float64]{Name: w.Name(), Measures: []contest.Measure[float64]{m}}
	for _, g := range []*Program{ours, theirs} {
		c.Programs = append(c.Programs, func(ctx context.Context) (float64, error) { return g.measure(ctx, p, w) })
	}
	return c
}
