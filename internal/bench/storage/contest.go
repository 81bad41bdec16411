package storage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
)

// The bars: the same number of operations, with the same processor time, up to the accuracy of a
// measurement.
const (
	rateBar = 0.95
	costBar = 1.05
)

// Contest is one case.
type Contest struct {
	*contest.Contest[run]
	Work  Work
	start [2]time.Duration // processor time of a run of one operation, ours and theirs
	// programs, and the time of each run.
	programs [2]*Program
	span     time.Duration
}

// NewContest makes a case on a target. target is its name for people.
func NewContest(target string, w Work, programs [2]*Program, span time.Duration) *Contest {
	c := &Contest{Work: w, programs: programs, span: span}
	c.Contest = &contest.Contest[run]{Name: w.name(target), Measures: []contest.Measure[run]{
		{Metric: "operations", Unit: "k/s", Better: bench.More, Bar: rateBar, Theirs: 1, Of: func(r run) float64 { return r.rate / 1e3 }},
		{Metric: "processor", Unit: "µs each", Better: bench.Less, Bar: costBar, Theirs: 1, Of: run.each},
	}}
	for k := range programs {
		c.Programs = append(c.Programs, func(ctx context.Context) (run, error) { return c.measure(ctx, k) })
	}
	return c
}

// Calibrate measures the cost of starting each program: the median of some runs. Without it the
// comparison of processor time is valid for long runs only.
func (c *Contest) Calibrate(ctx context.Context, runs int) error {
	for i, p := range c.programs {
		spent := make([]time.Duration, runs)
		for n := range spent {
			r, err := p.measure(ctx, c.Work, 0)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			spent[n] = r.cpu
		}
		slices.Sort(spent)
		c.start[i] = spent[runs/2]
	}
	return nil
}

// measure runs a program, after the disk has rested.
func (c *Contest) measure(ctx context.Context, k int) (run, error) {
	time.Sleep(rest(c.span))
	r, err := c.programs[k].measure(ctx, c.Work, c.span)
	return c.lessStart(k, r), err
}

// lessStart returns the run without the processor time of starting the program.
func (c *Contest) lessStart(k int, r run) run {
	r.cpu -= c.start[k]
	return r
}

// rest is how long the disk has no load before a run. At the end of a run some of its writes are
// still under way. They would be charged to the next run, and more so to a program that starts
// faster.
func rest(span time.Duration) time.Duration { return min(span/2, 400*time.Millisecond) }

// each is the processor time of an operation in microseconds.
func (r run) each() float64 {
	// A run as short as a test's may take less time than the variation of the start.
	return float64(max(r.cpu, time.Microsecond).Nanoseconds()) / 1e3 / r.operations
}
