package contest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// TestContest: the programs take turns at being first, and each measure compares the
// numbers of the two that it names.
func TestContest(t *testing.T) {
	var order []int
	run := func(k int) Run[float64] {
		return func(context.Context) (float64, error) {
			order = append(order, k)
			return float64(10*k + len(order)), nil
		}
	}
	identity := func(s float64) float64 { return s }
	c := Contest[float64]{Name: "case", Programs: []Run[float64]{run(0), run(1), run(2)}, Measures: []Measure[float64]{
		{Metric: "a", Better: bench.Less, Bar: 0.5, Theirs: 2, Of: identity},
		{Case: "best", Metric: "b", Ours: 1, Of: identity, OfTheirs: slices.Min[[]float64]},
	}}
	if err := c.Rounds(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 2, 1, 2, 0}; !slices.Equal(order, want) {
		t.Errorf("the programs ran in order %v, want %v", order, want)
	}
	all := c.Comparisons()
	if a := all[0]; a.Case != "case" || a.Metric != "a" || a.Bar != 0.5 || !slices.Equal(a.Pairs, []bench.Pair{{Ours: 1, Theirs: 23}, {Ours: 6, Theirs: 25}}) {
		t.Errorf("%+v", a)
	}
	if b := all[1]; b.Case != "best" || !slices.Equal(b.Pairs, []bench.Pair{{Ours: 12, Theirs: 1}, {Ours: 14, Theirs: 6}}) {
		t.Errorf("%+v", b)
	}
}

// TestFails: an error names the case and the round, and its round does not count.
func TestFails(t *testing.T) {
	broken := errors.New("broken")
	c := Contest[int]{Name: "case", Programs: []Run[int]{func(context.Context) (int, error) { return 0, broken }}}
	err := c.Rounds(t.Context(), 1)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "case, round 1") || len(c.Samples) != 0 {
		t.Errorf("%v, and %d rounds", err, len(c.Samples))
	}
}
