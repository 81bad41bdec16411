//go:build lab

package nvme

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// The bars: as much done, for as much processor time, within what a measurement can tell.
const (
	rateBar = 0.95
	costBar = 1.05
)

// contest is one case of both targets.
type contest struct {
	mode        string // of fio
	size, depth int
	pairs       [2][]sample
}

// sample is what one run did.
type sample struct {
	operations, bytes float64
	wall, busy        time.Duration
}

// contests are all cases.
func contests() (all []*contest) {
	for _, mode := range []string{"randread", "randwrite"} {
		for _, depth := range []int{1, 16} {
			all = append(all, &contest{mode: mode, size: 4 << 10, depth: depth})
		}
	}
	for _, mode := range []string{"read", "write"} {
		all = append(all, &contest{mode: mode, size: 128 << 10, depth: 8})
	}
	return all
}

func (c *contest) name() string {
	what := map[string]string{"randread": "random read", "randwrite": "random write", "read": "sequential read", "write": "sequential write"}[c.mode]
	return fmt.Sprintf("%s of %d KiB, depth %d", what, c.size>>10, c.depth)
}

// compare is what the pairs say.
func (c *contest) compare() []bench.Comparison {
	rate := bench.Comparison{Case: c.name(), Metric: "operations", Unit: "/s", Better: bench.More, Bar: rateBar}
	each := func(s sample) float64 { return s.operations / s.wall.Seconds() }
	if c.size > 4<<10 {
		rate.Metric, rate.Unit = "bandwidth", "MB/s"
		each = func(s sample) float64 { return s.bytes / s.wall.Seconds() / 1e6 }
	}
	cost := bench.Comparison{Case: c.name(), Metric: "processors of the guest", Unit: "µs each", Better: bench.Less, Bar: costBar}
	for i := range c.pairs[0] {
		ours, theirs := c.pairs[0][i], c.pairs[1][i]
		rate.Pairs = append(rate.Pairs, bench.Pair{Ours: each(ours), Theirs: each(theirs)})
		cost.Pairs = append(cost.Pairs, bench.Pair{Ours: ours.cost(), Theirs: theirs.cost()})
	}
	return []bench.Comparison{rate, cost}
}

// cost is the processors' time for an operation, in microseconds.
func (s sample) cost() float64 { return float64(s.busy.Microseconds()) / s.operations }
