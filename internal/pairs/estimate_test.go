package pairs

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestSignedRank compares with the published critical values of Wilcoxon's
// signed-rank test, one-sided, 5 %.
func TestSignedRank(t *testing.T) {
	for n, w := range map[int]int{5: 0, 6: 2, 7: 3, 8: 5, 9: 8, 10: 10, 11: 13, 12: 17, 15: 30, 20: 60} {
		if k := signedRank(n, 0.05); k != w {
			t.Errorf("n=%d: %d, the table says %d", n, k, w+1)
		}
	}
}

func TestJudgeKnownData(t *testing.T) {
	// Hollander and Wolfe, table 3.1, depression scale before and after: the
	// differences, estimate -0.46, 95.8 % two-sided interval (-0.786, -0.01) from
	// the sixth of 45 Walsh averages; at 95 % one-sided it is the ninth.
	d := []float64{-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010}
	ratios := make([]float64, len(d))
	for i := range d {
		ratios[i] = math.Exp(d[i])
	}
	w := walsh(ratios)
	if len(w) != 45 || math.Abs(w[5]+0.786) > 1e-3 || math.Abs(w[39]+0.010) > 1e-3 {
		t.Errorf("walsh averages 6 and 40 of %d: %v, %v", len(w), w[5], w[39])
	}
	e := judge(ratios)
	if math.Abs(math.Log(e.Ratio)+0.46) > 1e-3 || !near(math.Log(e.Low), w[8]) {
		t.Errorf("%+v", e)
	}
}

func TestJudgeSmall(t *testing.T) {
	if e := judge(nil); !math.IsNaN(e.Ratio) {
		t.Errorf("of nothing: %+v", e)
	}
	if e := judge([]float64{2, 2, 2, 2}); !near(e.Ratio, 2) || e.Low != 0 || !math.IsInf(e.High, 1) {
		t.Errorf("of four: %+v", e)
	}
	if e := judge([]float64{2, 2, 2, 2, 2}); !near(e.Ratio, 2) || !near(e.Low, 2) || !near(e.High, 2) {
		t.Errorf("of five: %+v", e)
	}
}

func TestJudgeMirrors(t *testing.T) {
	a := []float64{0.9, 1.1, 1.2, 0.95, 1.05, 1.4, 0.99}
	b := make([]float64, len(a))
	for i := range a {
		b[i] = 1 / a[i]
	}
	x, y := judge(a), judge(b)
	if !near(x.Ratio, 1/y.Ratio) || !near(x.Low, 1/y.High) || !near(x.High, 1/y.Low) {
		t.Errorf("%+v and %+v do not mirror", x, y)
	}
}

// TestCoverage draws many benchmarks whose true ratio is known and counts how often
// each bound holds.
func TestCoverage(t *testing.T) {
	const runs, pairs, truth = 4000, 9, 0.97
	rnd := rand.New(rand.NewPCG(1, 2))
	var below, above int
	for range runs {
		ratios := make([]float64, pairs)
		for i := range ratios {
			noise := rnd.NormFloat64() * 0.05
			if rnd.IntN(10) == 0 {
				noise *= 6 // now and then the machine is busy
			}
			ratios[i] = truth * math.Exp(noise)
		}
		e := judge(ratios)
		if e.Low > truth {
			below++
		}
		if e.High < truth {
			above++
		}
	}
	for _, wrong := range []int{below, above} {
		if share := float64(wrong) / runs; share > 0.06 || share < 0.03 {
			t.Errorf("a bound is wrong in %.3f of the runs, want just under %.2f", share, 1-Confidence)
		}
	}
}

// TestRound: the functions take turns at being first, and an error ends the round.
func TestRound(t *testing.T) {
	var order []int
	run := func(k int) func() error {
		return func() error { order = append(order, k); return nil }
	}
	for i := range 2 {
		if err := Round(i, run(0), run(1), run(2)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{0, 1, 2, 1, 2, 0}; !slices.Equal(order, want) {
		t.Errorf("in order %v, want %v", order, want)
	}
	broken := errors.New("broken")
	if err := Round(0, func() error { return broken }, run(3)); !errors.Is(err, broken) || len(order) != 6 {
		t.Errorf("%v, and then %v", err, order)
	}
}
