package roce

import (
	"context"
	"slices"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// contest is one work that several programs do.
type contest struct {
	work
	bench.Contest[sample]
	runners []*runner
}

// runner is a program at a place.
type runner struct {
	*program
	place place
	start *float64 // seconds of processor time of both ends for next to nothing; nil: not measured yet
}

func newContest(name string, w work, runners ...*runner) *contest {
	c := &contest{work: w, Contest: bench.Contest[sample]{Name: name}, runners: runners}
	for _, r := range runners {
		c.Programs = append(c.Programs, func(ctx context.Context) (sample, error) { return r.run(ctx, w) })
	}
	return c
}

// run measures a run. The processor time in tests of bandwidth does not include that of starting the program, which is
// measured with a very short run before.
func (r *runner) run(ctx context.Context, w work) (sample, error) {
	if !w.bandwidth {
		return r.measure(ctx, r.place, w)
	}
	if r.start == nil {
		short := w
		short.count = depth
		s, err := r.measure(ctx, r.place, short)
		if err != nil {
			return s, err
		}
		r.start = &s.cpu
	}
	s, err := r.measure(ctx, r.place, w)
	s.cpu -= *r.start
	return s, err
}

// number is one number of a run.
type number struct {
	name, unit string
	better     bench.Direction
	of         func(s sample, w work) float64
}

var (
	typical = number{"typical", "µs", bench.Less, func(s sample, _ work) float64 { return s.typical }}
	tail    = number{"99%", "µs", bench.Less, func(s sample, _ work) float64 { return s.tail }}
	average = number{"average", "MB/s", bench.More, func(s sample, _ work) float64 { return s.rate }}
	cost    = number{"processor", "s/GB", bench.Less, func(s sample, w work) float64 { return max(s.cpu, 1e-6) / float64(w.bytes()) * 1e9 }}
)

// duel compares a number of two runners. A bar of 0 is none.
func (c *contest) duel(ours, theirs *runner, n number, bar float64) {
	c.Measures = append(c.Measures, bench.Measure[sample]{Case: ours.name + " of " + bytes(c.size) + ", " + theirs.name,
		Metric: n.name, Unit: n.unit, Better: n.better, Bar: bar, Of: func(s sample) float64 { return n.of(s, c.work) },
		Ours: slices.Index(c.runners, ours), Theirs: slices.Index(c.runners, theirs)})
}
