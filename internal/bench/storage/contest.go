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

// contest is one case and what was measured of it so far.
type contest struct {
	work
	name       string
	start      [2]time.Duration // processor time of a run of one operation, ours and theirs
	rate, cost bench.Comparison
}

// pairs is how many pairs a round has. The speed of a disk, and of a machine that others
// share, changes from one second to the next by more than the bars allow: more and
// shorter runs tell more.
const pairs = 4

// spanOf is how long each run of a round lasts.
func spanOf(f bench.Form) time.Duration { return f.Span / 2 }

func newContest(target string, w work) *contest {
	name := w.name(target)
	return &contest{work: w, name: name,
		rate: bench.Comparison{Case: name, Metric: "operations", Unit: "k/s", Better: bench.More, Bar: rateBar},
		cost: bench.Comparison{Case: name, Metric: "processor", Unit: "µs each", Better: bench.Less, Bar: costBar}}
}

// calibrate finds what starting costs each program: the median of some runs.
func (c *contest) calibrate(ctx context.Context, programs [2]*program, runs int) error {
	for i, p := range programs {
		spent := make([]time.Duration, runs)
		for n := range spent {
			r, err := p.measure(ctx, c.work, 0)
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

// round measures the pairs of a round.
func (c *contest) round(ctx context.Context, i int, programs [2]*program, span time.Duration) error {
	for n := range pairs {
		if err := c.pair(ctx, i*pairs+n, programs, span); err != nil {
			return fmt.Errorf("%s, round %d: %w", c.name, i+1, err)
		}
	}
	return nil
}

// pair measures one pair.
func (c *contest) pair(ctx context.Context, i int, programs [2]*program, span time.Duration) error {
	var runs [2]run
	measure := func(k int) func() error {
		return func() (err error) {
			time.Sleep(rest(span))
			runs[k], err = programs[k].measure(ctx, c.work, span)
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
func (c *contest) each(k int, r run) float64 {
	// A run as short as a test's may be lost in what starting varies by.
	spent := max(r.cpu-c.start[k], time.Microsecond)
	return float64(spent.Nanoseconds()) / 1e3 / r.operations
}
