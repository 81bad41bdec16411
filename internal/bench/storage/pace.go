package storage

import (
	"context"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// Pace says how often and how long a contest is measured.
type Pace struct {
	Rounds int           // of all contests, one after the other
	Pairs  int           // of runs in a round of one contest
	Span   time.Duration // of each run
}

// paceOf returns the pace of a form. The speed of a disk, and of a shared machine, changes from one
// second to the next by more than the bars allow. So more and shorter runs than the form's give a
// better estimate.
func paceOf(f bench.Form) Pace { return Pace{Rounds: f.Rounds, Pairs: 4, Span: f.Span / 2} }

// Round measures the pairs of a round, counted from zero.
func (p Pace) Round(ctx context.Context, c *Contest, i int) error {
	for n := range p.Pairs {
		if err := c.Round(ctx, i*p.Pairs+n); err != nil {
			return err
		}
	}
	return nil
}
