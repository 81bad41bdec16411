package roce

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/unifiedd/unifiedd/internal/bench"
	benchcontest "github.com/unifiedd/unifiedd/internal/bench/contest"
)

// runner is a program at a place.
type runner struct {
	*program
	place place
	start float64 // seconds of processor time of both ends for next to nothing
}

// contest is one work that several programs do.
type contest struct {
	work
	runners []*runner
	duels   []duel
	rounds  *benchcontest.Contest[sample]
}

// duel says what is compared between two of them.
type duel struct {
	ours, theirs *runner
	measure
	bar float64 // 0: none
}

// measure is one number of a run.
type measure struct {
	name, unit string
	better     bench.Direction
	of         func(s sample, w work) float64
}

var (
	typical = measure{"typical", "µs", bench.Less, func(s sample, _ work) float64 { return s.typical }}
	tail    = measure{"99%", "µs", bench.Less, func(s sample, _ work) float64 { return s.tail }}
	average = measure{"average", "MB/s", bench.More, func(s sample, _ work) float64 { return s.rate }}
	cost    = measure{"processor", "s/GB", bench.Less, func(s sample, w work) float64 {
		// A run as short as a test's may take less time than the variation of the start.
		return math.Max(s.cpu, 1e-6) / float64(w.bytes()) * 1e9
	}}
)

// prepare makes the contest of the runners and duels.
func (c *contest) prepare() {
	c.rounds = &benchcontest.Contest[sample]{Name: bytes(c.size)}
	for _, r := range c.runners {
		c.rounds.Programs = append(c.rounds.Programs, func(ctx context.Context) (sample, error) {
			s, err := r.measure(ctx, r.place, c.work)
			return r.lessStart(s), err
		})
	}
	for _, d := range c.duels {
		c.rounds.Measures = append(c.rounds.Measures, benchcontest.Measure[sample]{Case: fmt.Sprintf("%s of %s, %s", d.ours.name, bytes(c.size), d.theirs.name),
			Metric: d.name, Unit: d.unit, Better: d.better, Bar: d.bar, Of: func(s sample) float64 { return d.of(s, c.work) },
			Ours: slices.Index(c.runners, d.ours), Theirs: slices.Index(c.runners, d.theirs)})
	}
}

// lessStart returns the sample without the processor time of starting the program.
func (r *runner) lessStart(s sample) sample {
	s.cpu -= r.start
	return s
}

// calibrate measures the cost of starting each program, where that matters.
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
