package pairs

import (
	"math"
	"slices"
)

// Confidence is the confidence of each bound of an Estimate.
const Confidence = 0.95

// Estimate is an estimate of the true ratio from paired ratios.
type Estimate struct {
	Ratio float64 `json:"ratio"` // Hodges-Lehmann estimate: the median of the means of all pairs of ratios
	Low   float64 `json:"low"`   // the true ratio is above it with Confidence
	High  float64 `json:"high"`  // the true ratio is below it with Confidence
}

// enoughPairs is the fewest ratios that give bounds. With four, the chance that all are on one side
// of the true ratio is still 1 in 16.
const enoughPairs = 5

// judge makes an estimate of ratios, all above zero. It inverts Wilcoxon's signed-rank test: the
// bounds are order statistics of the Walsh averages (the means of all pairs, each with itself too)
// of the logarithms, chosen by the exact distribution of the test's statistic. The test assumes
// only that noise affects both programs alike, so that a pair's ratio is as often too high by some
// factor as too low. Alternating the order of the runs ensures this. One wild pair moves the bounds
// little. With fewer than five ratios there are no bounds: Low is zero and High infinite. Without
// any, everything is NaN.
//
// M. Hollander, D. Wolfe, Nonparametric Statistical Methods, chapter 3. With as few pairs as there are here the bounds of
// golang.org/x/perf/benchmath, order statistics of the ratios themselves, are wider: of six ratios the least and the most.
func judge(ratios []float64) Estimate {
	if len(ratios) == 0 {
		return Estimate{math.NaN(), math.NaN(), math.NaN()}
	}
	w := walsh(ratios)
	e := Estimate{Ratio: math.Exp(median(w)), Low: 0, High: math.Inf(1)}
	if len(ratios) >= enoughPairs {
		k := signedRank(len(ratios), 1-Confidence)
		e.Low, e.High = math.Exp(w[k]), math.Exp(w[len(w)-1-k])
	}
	return e
}

// walsh returns the sorted means of all pairs of the ratios' logarithms.
func walsh(ratios []float64) []float64 {
	var w []float64
	for i, a := range ratios {
		for _, b := range ratios[i:] {
			w = append(w, (math.Log(a)+math.Log(b))/2)
		}
	}
	slices.Sort(w)
	return w
}

// signedRank returns the critical value: the largest w with P(W <= w) <= alpha, where W is the sum
// of those ranks 1 to n whose coin fell heads. That many Walsh averages lie outside the bound. It
// is -1 if there is none.
func signedRank(n int, alpha float64) int {
	p := 0.0
	for w, share := range rankSums(n) {
		if p += share; p > alpha {
			return w - 1
		}
	}
	return -1
}

// rankSums returns the probability of each sum of the ranks 1 to n, where each rank counts with
// probability one half.
func rankSums(n int) []float64 {
	p := make([]float64, n*(n+1)/2+1)
	p[0] = 1
	for rank := 1; rank <= n; rank++ {
		for s := len(p) - 1; s >= 0; s-- {
			p[s] /= 2
			if s >= rank {
				p[s] += p[s-rank] / 2
			}
		}
	}
	return p
}

// median returns the median of sorted values.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Median returns the median of values in any order; NaN if there are none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return median(slices.Sorted(slices.Values(values)))
}
