package roce

import (
	"context"
	"fmt"
	"math"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// runner is a program at a place, and what its runs told.
type runner struct {
	*program
	place   place
	samples []sample
	start   float64 // seconds of processor time of both ends for next to nothing
}

// contest is one work of several programs.
type contest struct {
	work
	runners []*runner
	duels   []duel
}

// duel is what is compared of two of them.
type duel struct {
	ours, theirs *runner
	measure
	bar float64 // 0: none
}

// measure is one number of a run.
type measure struct {
	name, unit string
	better     bench.Direction
	of         func(r *runner, s sample, w work) float64
}

var (
	typical = measure{"typical", "µs", bench.Less, func(_ *runner, s sample, _ work) float64 { return s.typical }}
	tail    = measure{"99%", "µs", bench.Less, func(_ *runner, s sample, _ work) float64 { return s.tail }}
	average = measure{"average", "MB/s", bench.More, func(_ *runner, s sample, _ work) float64 { return s.rate }}
	cost    = measure{"processor", "s/GB", bench.Less, func(r *runner, s sample, w work) float64 {
		// A run as short as a test's may be lost in what starting varies by.
		return math.Max(s.cpu-r.start, 1e-6) / float64(w.bytes()) * 1e9
	}}
)

// round measures every program once.
func (c *contest) round(ctx context.Context, i int) error {
	var runs []func() error
	for _, r := range c.runners {
		runs = append(runs, func() error {
			s, err := r.measure(ctx, r.place, c.work)
			r.samples = append(r.samples, s)
			return err
		})
	}
	if err := bench.Round(i, runs...); err != nil {
		return fmt.Errorf("%s, round %d: %w", bytes(c.size), i+1, err)
	}
	return nil
}

// calibrate finds what starting costs each program, where that counts.
func (c *contest) calibrate(ctx context.Context) error {
	if !c.bandwidth {
		return nil
	}
	w := c.work
	w.count = depth
	for _, r := range c.runners {
		s, err := r.measure(ctx, r.place, w)
		if err != nil {
			return fmt.Errorf("%s, to see what starting costs: %w", bytes(c.size), err)
		}
		r.start = s.cpu
	}
	return nil
}

// compare is what came of it.
func (c *contest) compare() (all []bench.Comparison) {
	for _, d := range c.duels {
		r := bench.Comparison{Case: fmt.Sprintf("%s of %s, %s", d.ours.name, bytes(c.size), d.theirs.name),
			Metric: d.name, Unit: d.unit, Better: d.better, Bar: d.bar}
		for i := range d.ours.samples {
			r.Pairs = append(r.Pairs, bench.Pair{Ours: d.of(d.ours, d.ours.samples[i], c.work), Theirs: d.of(d.theirs, d.theirs.samples[i], c.work)})
		}
		all = append(all, r)
	}
	return all
}
