// Package pairs compares two ways to do the same work, on a machine with other load.
//
// Absolute numbers of one run mean little: a minute later the machine is busier. So both ways take turns (Round), in
// pairs of short runs close together in time. Each pair gives one ratio, and an Estimate is computed from the ratios
// alone: what slows both runs of a pair cancels out. The estimate has bounds, and something is better only if the
// unfavourable bound says so.
package pairs

// Pair has the values of the two in one round.
type Pair struct {
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs"`
}

// Pairs is one pair for each round.
type Pairs []Pair

// Ratios is ours over theirs for each pair.
func (p Pairs) Ratios() []float64 {
	r := make([]float64, len(p))
	for i, one := range p {
		r[i] = one.Ours / one.Theirs
	}
	return r
}

// Estimate returns the estimated ratio, ours over theirs.
func (p Pairs) Estimate() Estimate { return judge(p.Ratios()) }

// Medians returns the median of each side's values, for people. Their ratio is not the estimate.
func (p Pairs) Medians() Pair {
	var ours, theirs []float64
	for _, one := range p {
		ours, theirs = append(ours, one.Ours), append(theirs, one.Theirs)
	}
	return Pair{Median(ours), Median(theirs)}
}

// Round calls each function once. Round 0 starts with the first function, the next round with the second, and
// so on, so that none has an advantage from its place. It ends at the first error.
func Round(i int, runs ...func() error) error {
	for k := range runs {
		if err := runs[(i+k)%len(runs)](); err != nil {
			return err
		}
	}
	return nil
}
