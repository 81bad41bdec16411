package capture

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/pairs"
)

// Rates that knee tries: the first, and the factor between one and the next.
const (
	firstRate = 100000
	rateStep  = 1.25
	topRate   = 4000000
)

// attempt is the result of packets at one rate.
type attempt struct {
	rate float64 // packets a second that were sent
	lost int
}

// knee returns the highest rate without loss; 0 if each rate lost packets. try sends at a rate and returns
// the rate that the sender reached. knee tries a rate with a loss once more. It ends at a rate that loses
// twice, or when the sender cannot send faster.
func knee(first float64, try func(rate int) (attempt, error)) (best float64, err error) {
	for rate := first; rate <= topRate; rate *= rateStep {
		a, err := try(int(rate))
		if err == nil && a.lost > 0 {
			a, err = try(int(rate))
		}
		if err != nil || a.lost > 0 {
			return best, err
		}
		if best = max(best, a.rate); a.rate < 0.9*rate {
			break // as fast as the sender is
		}
	}
	return best, nil
}

// kneeSpan is how long packets are sent at each rate.
const kneeSpan = time.Second

// TestAgainstCapturesKnees compares the highest rates without loss, of both of our engines.
func TestAgainstCapturesKnees(t *testing.T) {
	b := newBed(bench.Start(t, "capture-passive-knees", "Packets to disk, the highest rate without loss", "unifiedd with engine: packet", "others"))
	taken := bench.Start(t, "capture-knees", "Packets to disk from AF_XDP sockets, the highest rate without loss", withXDP, "others")
	for _, size := range []int{64, 512, 1024, 1500} {
		some := b.wanted(work{size: size}, b.engines())
		if len(some) == 1 {
			continue
		}
		m := bench.Comparison{Case: fmt.Sprintf("%d bytes", size), Metric: "rate without loss", Unit: "packets/s", Better: bench.More}
		rates := b.each(some, func(one contestant) (float64, error) {
			best, err := knee(firstRate, func(rate int) (attempt, error) { return b.attempt(one, work{size, rate}) })
			return max(1, best), err
		})
		compareAll(b.Report, taken, m, some, rates)
		for k, one := range some {
			if ours, theirs := pairs.Median(rates[0]), pairs.Median(rates[k]); one.name == "stenotype" && ours < theirs {
				b.Notes = append(b.Notes, fmt.Sprintf("Missed: %s: %.0f packets/s without loss, and stenotype %.0f, by the median.", m.Case, ours, theirs))
			}
		}
	}
	finishBoth(b.Report, taken,
		fmt.Sprintf("Each rate is by a quarter higher than the one before, for %v; what is lost twice at a rate ends it, or that the sender is no faster.", kneeSpan))
}

// each measures one number of each contestant in each round, in turn.
func (b *bed) each(all []contestant, measure func(contestant) (float64, error)) [][]float64 {
	b.Helper()
	values := make([][]float64, len(all))
	for i := range b.Form.Rounds {
		var turns []func() error
		for k, one := range all {
			turns = append(turns, func() error {
				v, err := measure(one)
				values[k] = append(values[k], v)
				return err
			})
		}
		b.Must(pairs.Round(i, turns...))
	}
	return values
}

// compareAll adds a comparison of the first contestant with each of the others to a report, and one of AF_XDP
// sockets with each but the first to another.
func compareAll(r, taken *bench.Report, m bench.Comparison, all []contestant, values [][]float64) {
	compare := func(r *bench.Report, ours, theirs int) {
		c := m
		c.Case += ": " + all[theirs].name
		for i := range values[ours] {
			c.Pairs = append(c.Pairs, pairs.Pair{Ours: values[ours][i], Theirs: values[theirs][i]})
		}
		r.Add(c)
	}
	for k := 1; k < len(all); k++ {
		compare(r, 0, k)
		if last := len(all) - 1; k < last && all[last].name == withXDP {
			compare(taken, last, k)
		}
	}
}

// finishBoth saves the reports of both engines with the same notes.
func finishBoth(r, taken *bench.Report, notes ...string) {
	r.Helper()
	r.Finish(notes...)
	if len(taken.Comparisons) > 0 {
		taken.Finish(notes...)
	}
}

// attempt sends packets to one contestant at a rate.
func (b *bed) attempt(c contestant, w work) (a attempt, err error) {
	r, err := b.begin(c)
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(r.dir)
	sent := int(kneeSpan.Seconds() * float64(w.rate))
	took, err := b.sendCount(w, sent)
	if err == nil {
		time.Sleep(c.settle)
	}
	if err = errors.Join(err, r.end()); err != nil {
		return a, err
	}
	found, err := r.found(sent)
	return attempt{rate: float64(sent) / took.Seconds(), lost: sent - int(found.numbers)}, err
}
