package bench

import (
	"context"
	"fmt"

	"github.com/unifiedd/unifiedd/internal/pairs"
)

// Contest is one case: programs that do the same work. S is what one run of a program measured.
type Contest[S any] struct {
	Name     string
	Programs []Run[S]
	Measures []Measure[S]
	// Samples has one row for each round, with one sample for each program.
	Samples [][]S
}

// Run measures a program once.
type Run[S any] func(ctx context.Context) (S, error)

// Measure compares one number of two programs.
type Measure[S any] struct {
	Case         string // empty: the contest's name
	Metric, Unit string
	Better       Direction
	Bar          float64 // 0: none
	Ours, Theirs int     // index of the programs
	Of           func(S) float64
	// OfTheirs computes the other number from a whole round, in place of Of and Theirs.
	OfTheirs func(round []S) float64
}

// Rounds runs every program once in each of n rounds. The number of the round determines which program is first.
func (c *Contest[S]) Rounds(ctx context.Context, n int) error {
	for i := range n {
		samples := make([]S, len(c.Programs))
		turns := make([]func() error, len(c.Programs))
		for k, run := range c.Programs {
			turns[k] = func() (err error) {
				samples[k], err = run(ctx)
				return err
			}
		}
		if err := pairs.Round(i, turns...); err != nil {
			return fmt.Errorf("%s, round %d: %w", c.Name, i+1, err)
		}
		c.Samples = append(c.Samples, samples)
	}
	return nil
}

// Comparisons has one comparison for each measure.
func (c *Contest[S]) Comparisons() (all []Comparison) {
	for _, m := range c.Measures {
		r := Comparison{Case: m.Case, Metric: m.Metric, Unit: m.Unit, Better: m.Better, Bar: m.Bar}
		if r.Case == "" {
			r.Case = c.Name
		}
		for _, round := range c.Samples {
			p := pairs.Pair{Ours: m.Of(round[m.Ours])}
			if m.OfTheirs != nil {
				p.Theirs = m.OfTheirs(round)
			} else {
				p.Theirs = m.Of(round[m.Theirs])
			}
			r.Pairs = append(r.Pairs, p)
		}
		all = append(all, r)
	}
	return all
}

// Compare runs a contest and adds its comparisons to a report, if the contest's name is wanted.
func Compare[S any](r *Report, c *Contest[S]) {
	r.Helper()
	if r.Wants(c.Name) {
		r.Must(c.Rounds(r.Context(), r.Form.Rounds))
		r.Add(c.Comparisons()...)
	}
}
