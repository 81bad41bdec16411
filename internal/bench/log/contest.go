package log

import (
	"github.com/unifiedd/unifiedd/internal/bench"
)

// bar is the most of ours for one of theirs at received: of the latency, and of the processors' time.
const bar = 0.5

// contest is one work and what was measured of it so far.
type contest struct {
	work
	latency, tail, cost, ends, rate bench.Comparison
	flush, flushRate                bench.Comparison // durable alone: ours beside the disk's own write and flush
	floor, floorCost                bench.Comparison // with a floor alone: our packets by themselves beside theirs
}

func newContest(w work) *contest {
	held := 0.0
	if w.durability == received {
		held = bar
	}
	return &contest{work: w,
		latency: bench.Comparison{Case: w.name(), Metric: "latency, median", Unit: "µs", Better: bench.Less, Bar: held},
		tail:    bench.Comparison{Case: w.name(), Metric: "latency, 99%", Unit: "µs", Better: bench.Less},
		cost:    bench.Comparison{Case: w.name(), Metric: "whole machine", Unit: "µs/record", Better: bench.Less, Bar: held},
		ends:    bench.Comparison{Case: w.name(), Metric: "both ends' processes", Unit: "µs/record", Better: bench.Less},
		rate:    bench.Comparison{Case: w.name(), Metric: "appends", Unit: "k/s", Better: bench.More},

		flush:     bench.Comparison{Case: w.name(), Metric: "latency; the disk's write and flush", Unit: "µs", Better: bench.Less},
		flushRate: bench.Comparison{Case: w.name(), Metric: "appends; the disk, one of each client a flush", Unit: "k/s", Better: bench.More},

		floor:     bench.Comparison{Case: w.name(), Metric: "latency, median; the packets alone", Unit: "µs", Better: bench.Less},
		floorCost: bench.Comparison{Case: w.name(), Metric: "whole machine; the packets alone", Unit: "µs/record", Better: bench.Less}}
}

// add notes a round of runs: ours, theirs, and the packets alone where there is a floor.
func (c *contest) add(runs [3]sample) {
	put := func(m *bench.Comparison, ours sample, of func(sample) float64) {
		m.Pairs = append(m.Pairs, bench.Pair{Ours: of(ours), Theirs: of(runs[1])})
	}
	typical := func(s sample) float64 { return s.typical / 1e3 }
	machine := func(s sample) float64 { return float64(s.machine) / 1e3 / s.records }
	put(&c.latency, runs[0], typical)
	put(&c.tail, runs[0], func(s sample) float64 { return s.tail / 1e3 })
	put(&c.cost, runs[0], machine)
	put(&c.ends, runs[0], func(s sample) float64 { return float64(s.spent) / 1e3 / s.records })
	put(&c.rate, runs[0], func(s sample) float64 { return s.records / s.seconds / 1e3 })
	if c.hasFloor() {
		put(&c.floor, runs[2], typical)
		put(&c.floorCost, runs[2], machine)
	}
}

// beside notes a run of ours and what the disk does by itself.
func (c *contest) beside(ours, disk sample) {
	c.flush.Pairs = append(c.flush.Pairs, bench.Pair{Ours: ours.typical / 1e3, Theirs: disk.typical / 1e3})
	c.flushRate.Pairs = append(c.flushRate.Pairs, bench.Pair{Ours: ours.records / ours.seconds / 1e3, Theirs: disk.records / disk.seconds / 1e3})
}

func (c *contest) comparisons() []bench.Comparison {
	all := []bench.Comparison{c.latency, c.tail, c.cost, c.ends, c.rate}
	if c.durability == durable {
		all = append(all, c.flush, c.flushRate)
	}
	if c.hasFloor() {
		all = append(all, c.floor, c.floorCost)
	}
	return all
}
