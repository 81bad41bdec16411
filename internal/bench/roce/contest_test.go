package roce

import (
	"context"
	"math"
	"testing"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// compared returns the comparisons of a contest in which each program measures other numbers.
func compared(c *contest) []bench.Comparison {
	c.prepare()
	var round []sample
	for i := range c.runners {
		n := float64(i + 1)
		round = append(round, sample{n, 10 * n, 100 * n, n})
	}
	c.rounds.Samples = [][]sample{round}
	return c.rounds.Comparisons()
}

func TestCompareLatency(t *testing.T) {
	all := compared(latencyHere(place{}, barred, bench.Usual, "p", "c"))
	if len(all) != 8 {
		t.Fatalf("%d comparisons", len(all))
	}
	for k, want := range []bench.Comparison{
		{Case: "WRITE of 64 B, xsk-pingpong", Metric: "typical", Bar: pingpongBar, Pairs: []bench.Pair{{Ours: 2, Theirs: 3}}},
		{Case: "WRITE of 64 B, xsk-pingpong", Metric: "99%", Pairs: []bench.Pair{{Ours: 20, Theirs: 30}}},
		{Case: "WRITE of 64 B, sockperf", Metric: "typical", Bar: sockperfBar, Pairs: []bench.Pair{{Ours: 2, Theirs: 4}}},
		{Case: "WRITE of 64 B, sockperf", Metric: "99%", Bar: tailBar, Pairs: []bench.Pair{{Ours: 20, Theirs: 40}}},
	} {
		got := all[4+k]
		if got.Case != want.Case || got.Metric != want.Metric || got.Bar != want.Bar || got.Pairs[0] != want.Pairs[0] || got.Better != bench.Less {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for _, got := range compared(latencyHere(place{}, 4096, bench.Usual, "p", "c")) {
		if got.Bar != 0 {
			t.Errorf("%+v has a bar", got)
		}
	}
}

func TestCompareBandwidth(t *testing.T) {
	c := bandwidthHere(place{}, place{}, bench.Usual, "p")
	all := compared(c)
	if len(all) != 8 || all[0].Better != bench.More || all[0].Pairs[0] != (bench.Pair{Ours: 100, Theirs: 300}) {
		t.Fatalf("%+v", all)
	}
	each := func(seconds float64) float64 { return seconds / float64(c.bytes()) * 1e9 }
	if p := all[3].Pairs[0]; all[3].Metric != "processor" || math.Abs(p.Ours-each(1)) > 1e-9 || math.Abs(p.Theirs-each(4)) > 1e-9 {
		t.Errorf("%+v", all[3])
	}
}

// spent is a server that has ended and used that many seconds of processor time.
type spent float64

func (s spent) end() (cpu float64, err error) { return float64(s), nil }

// TestCostLessStart: the processor time of a run does not include that of starting the program.
func TestCostLessStart(t *testing.T) {
	r := &runner{start: 0.5, program: &program{
		client: func(place, work) []string { return []string{"true"} },
		read:   func([]byte, work) (sample, error) { return sample{}, nil },
	}, place: place{
		client: end{cpu: -1},
		serve:  func(context.Context, *program, work) (server, error) { return spent(60), nil },
	}}
	c := &contest{runners: []*runner{r}}
	c.prepare()
	s, err := c.rounds.Programs[0](t.Context())
	if err != nil || s.cpu < 59.5 || s.cpu >= 60 {
		t.Errorf("%v s, %v", s.cpu, err)
	}
}

func TestCompareGuests(t *testing.T) {
	all := compared(betweenGuests(place{}, "write", 64, bench.Usual, "p", "rxe0"))
	if all[0].Case != "WRITE of 64 B, perftest" || all[0].Bar != softLatencyBar || all[0].Pairs[0] != (bench.Pair{Ours: 1, Theirs: 2}) {
		t.Errorf("%+v", all)
	}
	c := betweenGuests(place{}, "send", chunk, bench.Short, "p", "rxe0")
	if all := compared(c); all[0].Case != "SEND of 64 KiB, perftest" || all[0].Bar != softBandwidthBar || all[0].Better != bench.More || c.count < depth {
		t.Errorf("%+v", all)
	}
}
