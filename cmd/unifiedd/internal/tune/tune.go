package tune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/internal/pairs"
)

// Trial is one comparison: flows with a value, and without it.
type Trial struct {
	Setting string         `json:"setting"` // empty: all that were taken, against the defaults
	Value   string         `json:"value"`
	Against string         `json:"against"`
	Pairs   int            `json:"pairs"`
	With    Figures        `json:"with"`    // medians
	Without Figures        `json:"without"` // medians
	Rate    pairs.Estimate `json:"rate"`    // ratio of packets a second; for an interface of the share that is not lost
	CPU     pairs.Estimate `json:"cpu"`     // ratio of processor time of a packet
	Taken   bool           `json:"taken"`
	Why     string         `json:"why"`
}

// Result is what was found.
type Result struct {
	Subject  string  `json:"subject"`
	Kind     Kind    `json:"kind"`
	Defaults string  `json:"defaults"`       // configuration
	Proposal string  `json:"proposal"`       // configuration; the defaults, if nothing is better
	Better   bool    `json:"better"`         // the proposal is better than the defaults
	Card     *Change `json:"card,omitempty"` // what became of the card's settings; nil: they were left alone
	// Trials are in the order in which they were made. The last one is of the whole proposal, if there is one.
	Trials []Trial `json:"trials"`
}

// rounds is how often each comparison is repeated, and lastRounds that of the whole proposal. With fewer than five there
// is no bound.
const rounds, lastRounds = 6, 9

// Bounds of what counts as better. A gain that is smaller is not worth another configuration.
const (
	faster   = 1.02 // rate, lower bound
	noSlower = 0.99 // rate, lower bound, if it takes less of the processor
	cheaper  = 0.97 // processor time of a packet, upper bound
)

// shortest is the shortest useful run.
const shortest = 100 * time.Millisecond

// Tune measures for about a duration. It calls tell before each comparison, unless tell is nil. An error of the first
// run ends it; a value with which the flow does not run is not taken. However it ends, a card keeps only settings of
// which the result says so, and has all others as they were.
func Tune(ctx context.Context, s Subject, duration time.Duration, tell func(string)) (r *Result, err error) {
	if tell == nil {
		tell = func(string) {}
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	all, err := s.settings()
	if err == nil {
		all, err = s.only(all)
	}
	if err != nil {
		return nil, err
	}
	base := defaults(all)
	r = &Result{Subject: s.Name, Kind: s.Kind, Defaults: s.text(base, false)}
	runs := 1 + 2*lastRounds
	for _, one := range all {
		runs += 2 * rounds * (len(one.values) - 1)
	}
	span := duration / time.Duration(runs)
	if span < shortest {
		return nil, fmt.Errorf("%v are too short for %d runs: at least %v are needed", duration, runs, time.Duration(runs)*shortest)
	}
	leave := base // also after a panic
	defer func() { err = errors.Join(err, s.Outside.leave(leave)) }()
	tell("the defaults, once")
	if _, err := s.run(ctx, base, span); err != nil {
		return nil, err
	}
	best := base
	for _, one := range all {
		for _, value := range one.values[1:] {
			if s.same(best.with(one.key, value), best) {
				continue // another setting that was taken leaves it out
			}
			tell(fmt.Sprintf("%s: %s", one.key, shown(value)))
			t, err := s.compare(ctx, best.with(one.key, value), best, rounds, span)
			if err != nil {
				return nil, err
			}
			t.Setting, t.Value, t.Against = one.key, value, best[one.key]
			if r.Trials = append(r.Trials, t); t.Taken {
				best = best.with(one.key, value)
			}
		}
	}
	if err := s.conclude(ctx, r, best, base, span, tell); err != nil {
		return nil, err
	}
	if r.Better {
		leave = best
	}
	r.Card = s.Outside.changes(leave)
	return r, nil
}

// same reports whether two choices are the same flow on the same card: some settings leave others out.
func (s *Subject) same(a, b choice) bool {
	return s.text(a, false) == s.text(b, false) && maps.Equal(s.Outside.of(a), s.Outside.of(b))
}

// conclude compares all that was taken with the defaults.
func (s *Subject) conclude(ctx context.Context, r *Result, best, base choice, span time.Duration, tell func(string)) error {
	r.Proposal = r.Defaults
	if s.same(best, base) {
		return nil
	}
	tell("all that is better, against the defaults")
	t, err := s.compare(ctx, best, base, lastRounds, span)
	if err != nil {
		return err
	}
	if r.Trials = append(r.Trials, t); t.Taken {
		r.Proposal, r.Better = s.text(best, false), true
	}
	return nil
}

// shown is a value for people.
func shown(value string) string {
	if value == "" {
		return "left out"
	}
	return value
}

// compare runs two choices in turn. A choice that does not run is not taken.
func (s *Subject) compare(ctx context.Context, with, without choice, rounds int, span time.Duration) (t Trial, err error) {
	var rate, cpu pairs.Pairs
	var mine, theirs []Figures
	for i := range rounds {
		var a, b Figures
		err := pairs.Round(i, func() (err error) { a, err = s.run(ctx, with, span); return err }, func() (err error) { b, err = s.run(ctx, without, span); return err })
		if ctx.Err() != nil {
			return t, context.Cause(ctx)
		}
		if err != nil {
			t.Why = "it does not run: " + err.Error()
			return t, s.Outside.arrange(ctx, without)
		}
		mine, theirs = append(mine, a), append(theirs, b)
		if s.Kind == Interface { // how many packets there are is not for the settings to decide
			rate = append(rate, pairs.Pair{Ours: 1 - a.Lost, Theirs: 1 - b.Lost})
		} else {
			rate = append(rate, pairs.Pair{Ours: a.Rate, Theirs: b.Rate})
		}
		cpu = append(cpu, pairs.Pair{Ours: a.CPU, Theirs: b.CPU})
	}
	t.Pairs, t.Rate, t.CPU = rounds, rate.Estimate(), cpu.Estimate()
	t.With, t.Without = middle(mine), middle(theirs)
	t.decide()
	return t, nil
}

// middle returns the median of each figure.
func middle(all []Figures) Figures {
	median := func(of func(*Figures) float64) float64 {
		var values []float64
		for i := range all {
			values = append(values, of(&all[i]))
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	return Figures{median(func(f *Figures) float64 { return f.Rate }), median(func(f *Figures) float64 { return f.CPU }), median(func(f *Figures) float64 { return f.Lost })}
}

// decide takes the value if the bounds say that it is better.
func (t *Trial) decide() {
	switch {
	case t.With.Lost > t.Without.Lost+0.0001:
		t.Why = "it loses more"
	case t.Rate.Low > faster:
		t.Taken, t.Why = true, "it is faster"
	case t.Rate.Low >= noSlower && t.CPU.High < cheaper:
		t.Taken, t.Why = true, "it takes less of the processor, and is no slower"
	default:
		t.Why = "it is not clearly better"
	}
}
