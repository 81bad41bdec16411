package rdma

import (
	"context"
	"fmt"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// The bars.
const (
	latencyBar   = 1.05
	bandwidthBar = 0.95
)

// Contest is one case and what was measured of it so far.
type Contest struct {
	Work
	result bench.Comparison
}

// NewContest makes one.
func NewContest(w Work) *Contest {
	c := &Contest{Work: w, result: bench.Comparison{Case: w.Name(), Metric: "typical", Unit: "µs", Better: bench.Less, Bar: latencyBar}}
	if w.Bandwidth {
		c.result.Metric, c.result.Unit, c.result.Better, c.result.Bar = "average", "MB/s", bench.More, bandwidthBar
	}
	return c
}

// Result compares the typical latency, or the average bandwidth.
func (c *Contest) Result() bench.Comparison { return c.result }

// Pair measures both programs, ours and theirs, the one first or the other by the number of the pair.
func (c *Contest) Pair(ctx context.Context, i int, p Place, programs [2]*Program) error {
	var values [2]float64
	measure := func(k int) func() error {
		return func() (err error) {
			values[k], err = programs[k].measure(ctx, p, c.Work)
			return err
		}
	}
	if err := bench.Round(i, measure(0), measure(1)); err != nil {
		return fmt.Errorf("%s, pair %d: %w", c.Name(), i+1, err)
	}
	c.result.Pairs = append(c.result.Pairs, bench.Pair{Ours: values[0], Theirs: values[1]})
	return nil
}
