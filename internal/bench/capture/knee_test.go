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

// TestAgainstKnees compares the highest rates without loss.
func TestAgainstKnees(t *testing.T) {
	b := newBed(t)
	r := bench.NewReport("Packets to disk, the highest rate without loss", "unifiedd", "others")
	sizes, first := []int{64, 1024}, float64(firstRate)
	all := append([]contestant{b.advised()}, b.others()...)
	if b.form == bench.Short {
		sizes, first, all = sizes[1:], topRate/rateStep, all[:2] // as fast as the sender is
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
					rates[k] = append(rates[k], best)
					return err
				})
			}
			b.must(bench.Round(i, turns...))
		}
		for k, one := range some[1:] {
			m := bench.Comparison{Case: fmt.Sprintf("%d bytes: %s", size, one.name), Metric: "rate without loss", Unit: "packets/s", Better: bench.More}
			for i := range rates[0] {
				m.Pairs = append(m.Pairs, bench.Pair{Ours: max(1, rates[0][i]), Theirs: max(1, rates[k+1][i])})
			}
			r.Comparisons = append(r.Comparisons, m)
		}
	}
	r.Notes = append(r.Notes, fmt.Sprintf("Each rate is by a quarter higher than the one before, for %v; what is lost twice at a rate ends it, or that the sender is no faster.", kneeSpan))
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "capture-knees"))
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
