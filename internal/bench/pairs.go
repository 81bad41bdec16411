package bench

// Pair has the values of the two programs in one round.
type Pair struct {
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs"`
}

// Direction says which values are better.
type Direction string

const (
	More Direction = "more" // the higher the better, as a rate
	Less Direction = "less" // the lower the better, as a cost
)

// Comparison is one measure of one case of both programs.
type Comparison struct {
	Case   string    `json:"case"`          // the work: "zram, random read of 4 KiB, depth 1"
	Metric string    `json:"metric"`        // the measured quantity: "I/O per second"
	Unit   string    `json:"unit"`          // for people: "kIOPS", "µs"
	Better Direction `json:"better"`        // which way is good
	Bar    float64   `json:"bar,omitempty"` // the bar for the ratio; zero: none
	Pairs  []Pair    `json:"pairs"`         // one for each round
}

// Ratios is ours over theirs for each pair.
func (c *Comparison) Ratios() []float64 {
	r := make([]float64, len(c.Pairs))
	for i, p := range c.Pairs {
		r[i] = p.Ours / p.Theirs
	}
	return r
}

// Estimate returns the estimated ratio, ours over theirs.
func (c *Comparison) Estimate() Estimate { return judge(c.Ratios()) }

// Met reports whether the unfavourable bound meets the bar. A comparison without a bar always does.
func (c *Comparison) Met() bool {
	switch e := c.Estimate(); {
	case c.Bar == 0:
		return true
	case c.Better == Less:
		return e.High <= c.Bar
	default:
		return e.Low >= c.Bar
	}
}

// Medians returns the median of each program's values, for people. Their ratio is not the estimate.
func (c *Comparison) Medians() Pair {
	var ours, theirs []float64
	for _, p := range c.Pairs {
		ours, theirs = append(ours, p.Ours), append(theirs, p.Theirs)
	}
	return Pair{middle(ours), middle(theirs)}
}

// Round calls each program once. Round 0 starts with the first program, the next round with the second, and
// so on, so that none has an advantage from its place. It ends at the first error.
func Round(i int, programs ...func() error) error {
	for k := range programs {
		if err := programs[(i+k)%len(programs)](); err != nil {
			return err
		}
	}
	return nil
}
