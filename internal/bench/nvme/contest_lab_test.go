//go:build lab

package nvme

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
)

// The bars: the same amount of work, with the same processor time, up to the accuracy of a
// measurement.
const (
	rateBar = 0.95
	costBar = 1.05
)

// sample is the result of one run.
type sample struct {
	operations, bytes float64
	wall, busy        time.Duration
}

// work is what fio does on both targets.
type work struct {
	mode        string // of fio
	size, depth int
}

// works are all cases.
func works() (all []work) {
	for _, mode := range []string{"randread", "randwrite"} {
		for _, depth := range []int{1, 16} {
			all = append(all, work{mode, 4 << 10, depth})
		}
	}
	for _, mode := range []string{"read", "write"} {
		all = append(all, work{mode, 128 << 10, 8})
	}
	return all
}

func (w work) name() string {
	what := map[string]string{"randread": "random read", "randwrite": "random write", "read": "sequential read", "write": "sequential write"}[w.mode]
	return fmt.Sprintf("%s of %d KiB, depth %d", what, w.size>>10, w.depth)
}

// newContest compares two targets.
func newContest(w work, ours, theirs contest.Run[sample]) *contest.Contest[sample] {
	rate := contest.Measure[sample]{Metric: "operations", Unit: "/s", Better: bench.More, Bar: rateBar, Theirs: 1,
		Of: func(s sample) float64 { return s.operations / s.wall.Seconds() }}
	if w.size > 4<<10 {
		rate.Metric, rate.Unit = "bandwidth", "MB/s"
		rate.Of = func(s sample) float64 { return s.bytes / s.wall.Seconds() / 1e6 }
	}
	cost := contest.Measure[sample]{Metric: "processors of the guest", Unit: "µs each", Better: bench.Less, Bar: costBar, Theirs: 1, Of: sample.cost}
	return &contest.Contest[sample]{Name: w.name(), Programs: []contest.Run[sample]{ours, theirs}, Measures: []contest.Measure[sample]{rate, cost}}
}

// cost is the processor time of an operation, in microseconds.
func (s sample) cost() float64 { return float64(s.busy.Microseconds()) / s.operations }
