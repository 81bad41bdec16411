package storage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// The bars: as many operations, for as much processor time, within what a
// measurement can tell.
const (
	rateBar = 0.95
	costBar = 1.05
)

// Contest is one case and what was measured of it so far.
type Contest struct {
	Work
	name       string
	start      [2]time.Duration // processor time of a run of one operation, ours and theirs
	rate, cost bench.Comparison
}

// NewContest makes one on a target that people know by a name.
func NewContest(target string, w Work) *Contest {
	name := w.name(target)
	return &Contest{Work: w, name: name,
		rate: bench.Comparison{Case: name, Metric: "operations", Unit: "k/s", Better: bench.More, Bar: rateBar},
		cost: bench.Comparison{Case: name, Metric: "processor", Unit: "µs each", Better: bench.Less, Bar: costBar}}
}

// Rate compares operations per second.
func (c *Contest) Rate() bench.Comparison { return c.rate }

// Cost compares processor time per operation, and holds only after Calibrate.
func (c *Contest) Cost() bench.Comparison { return c.cost }

// Calibrate finds what starting costs each program: the median of some runs.
func (c *Contest) Calibrate(ctx context.Context, programs [2]*Program, runs int) error {
	for i, p := range programs {
		spent := make([]time.Duration, runs)
		for n := range spent {
			r, err := p.measure(ctx, c.Work, 0)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			spent[n] = r.cpu
		}
		slices.Sort(spent)
		c.start[i] = spent[runs/2]
	}
	return nil
}

// Round measures the pairs of a round, counted from zero.
func (c *Contest) Round(ctx context.Context, i int, programs [2]*Program, pace Pace) error {
	for n := range pace.Pairs {
		if err := c.pair(ctx, i*pace.Pairs+n, programs, pace.Span); err != nil {
			return fmt.Errorf("%s, round %d: %w", c.name, i+1, err)
		}
	}
	return nil
}

// pair measures one pair.
func (c *Contest) pair(ctx context.Context, i int, programs [2]*Program, span time.Duration) error {
	var runs [2]run
	measure := func(k int) func() error {
		return func() (err error) {
			time.Sleep(rest(span))
			runs[k], err = programs[k].measure(ctx, c.Work, span)
			return err
		}
	}
	if err := bench.Round(i, measure(0), measure(1)); err != nil {
		return err
	}
	c.rate.Pairs = append(c.rate.Pairs, bench.Pair{Ours: runs[0].rate / 1e3, Theirs: runs[1].rate / 1e3})
	c.cost.Pairs = append(c.cost.Pairs, bench.Pair{Ours: c.each(0, runs[0]), Theirs: c.each(1, runs[1])})
	return nil
}

// rest is how long the disk is left alone before a run. What a run wrote is still on
// its way when it has ended, and would be charged to the next one, the less the longer
// that takes to start.
func rest(span time.Duration) time.Duration { return min(span/2, 400*time.Millisecond) }

// each is the processor time of an operation in microseconds.
func (c *Contest) each(k int, r run) float64 {
	// A run as short as a test's may be lost in what starting varies by.
	spent := max(r.cpu-c.start[k], time.Microsecond)
	return float64(spent.Nanoseconds()) / 1e3 / r.operations
}
