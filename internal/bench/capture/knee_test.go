package capture

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// TestKnee: knee finds the highest rate without loss. It forgives a single loss. Neither a rate that the
// sender cannot reach nor an error counts as the knee.
func TestKnee(t *testing.T) {
	const from = 1000
	for name, c := range map[string]struct {
		most, sender float64 // of the contestant and the sender
		want         float64
	}{
		"loses above":   {1600, 1e9, 1562},
		"loses at once": {500, 1e9, 0},
		"slow sender":   {1e9, 1300, 1300},
	} {
		once := map[int]bool{}
		got, err := knee(from, func(rate int) (attempt, error) {
			a := attempt{rate: min(float64(rate), c.sender)}
			if a.rate > c.most || !once[rate] && rate == from {
				a.lost = 1
			}
			once[rate] = true
			return a, nil
		})
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	broken := errors.New("broken")
	if _, err := knee(from, func(int) (attempt, error) { return attempt{}, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestAgainstCapturesKnees compares the highest rates without loss, of both of our engines.
func TestAgainstCapturesKnees(t *testing.T) {
	b := newBed(t)
	r := bench.NewReport("Packets to disk, the highest rate without loss", "unifiedd with engine: packet", "others")
	taken := bench.NewReport("Packets to disk from AF_XDP sockets, the highest rate without loss", withXDP, "others")
	sizes, first, all := []int{64, 512, 1024, 1500}, float64(firstRate), b.engines()
	if b.form == bench.Short {
		sizes, first, all = sizes[2:3], topRate/rateStep, []contestant{all[0], all[1], all[len(all)-1]} // as fast as the sender is
	}
	for _, size := range sizes {
		some := b.wanted(work{size: size}, all)
		if len(some) == 1 {
			continue
		}
		rates := make([][]float64, len(some))
		for i := range b.rounds() {
			var turns []func() error
			for k, one := range some {
				turns = append(turns, func() error {
					best, err := knee(first, func(rate int) (attempt, error) { return b.attempt(one, work{size: size, rate: rate}) })
					rates[k] = append(rates[k], max(1, best))
					return err
				})
			}
			b.must(bench.Round(i, turns...))
		}
		m := bench.Comparison{Case: fmt.Sprintf("%d bytes", size), Metric: "rate without loss", Unit: "packets/s", Better: bench.More}
		compareAll(r, taken, m, some, rates)
		for k, one := range some {
			if one.name == "stenotype" && middle(rates[0]) < middle(rates[k]) {
				r.Notes = append(r.Notes, fmt.Sprintf("Missed: %s: %.0f packets/s without loss, and stenotype %.0f, by the median.", m.Case, middle(rates[0]), middle(rates[k])))
			}
		}
	}
	note := fmt.Sprintf("Each rate is by a quarter higher than the one before, for %v; what is lost twice at a rate ends it, or that the sender is no faster.", kneeSpan)
	b.finishBoth(r, taken, "knees", note)
}

// compareAll adds a comparison of the first contestant with each of the others to a report, and one of AF_XDP
// sockets with each but the first to another.
func compareAll(r, taken *bench.Report, m bench.Comparison, all []contestant, values [][]float64) {
	compare := func(r *bench.Report, ours, theirs int) {
		c := m
		c.Case += ": " + all[theirs].name
		for i := range values[ours] {
			c.Pairs = append(c.Pairs, bench.Pair{Ours: values[ours][i], Theirs: values[theirs][i]})
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	for k := 1; k < len(all); k++ {
		compare(r, 0, k)
		if last := len(all) - 1; k < last && all[last].name == withXDP {
			compare(taken, last, k)
		}
	}
}

// finishBoth saves the reports of both engines with the same notes.
func (b *bed) finishBoth(r, taken *bench.Report, name string, notes ...string) {
	b.Helper()
	r.Notes = append(r.Notes, notes...)
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "capture-passive-"+name))
	if len(taken.Comparisons) > 0 {
		taken.Notes = append(taken.Notes, notes...)
		b.must(taken.Finish(b.Output(), b.form, b.TempDir(), "capture-"+name))
	}
}

// attempt sends packets to one contestant at a rate.
func (b *bed) attempt(c contestant, w work) (a attempt, err error) {
	r, err := b.begin(c)
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(r.dir)
	sent := int(min(b.span()/4, kneeSpan).Seconds() * float64(w.rate))
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
