package capture

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// TestContest: the ratios are our cost over each other's, and over the best of those that are not stenotype.
// A loss is reported if another contestant had none.
func TestContest(t *testing.T) {
	c := newContest(work{size: 64, rate: 1000}, bars{stenotype: 1.2, best: 0.4, level: true}, []string{"ours", "stenotype", "slow", "slower"})
	for range 5 {
		c.Samples = append(c.Samples, []sample{{sent: 1000, cost: 3 * time.Millisecond, lost: 1, onDisk: 999 * 80}, {sent: 1000, cost: 2 * time.Millisecond}, {sent: 1000, cost: 9 * time.Millisecond}, {sent: 1000, cost: 12 * time.Millisecond, lost: 5}})
	}
	r := bench.NewReport("", "", "")
	r.Comparisons = c.Comparisons()
	want := map[string]float64{"stenotype": 1.5, "slow": 1. / 3, "slower": 1. / 4, "the best of those": 1. / 3}
	for _, m := range r.Comparisons {
		_, name, _ := strings.Cut(m.Case, ": ")
		if got := m.Estimate().Ratio; math.Abs(got-want[name]) > 1e-9 {
			t.Errorf("%s: %v, want %v", m.Case, got, want[name])
		}
	}
	if r.Comparisons[0].Bar != 1.2 || r.Comparisons[3].Bar != 0.4 {
		t.Errorf("bars are %v and %v", r.Comparisons[0].Bar, r.Comparisons[3].Bar)
	}
	if len(r.Comparisons) != 4 {
		t.Errorf("%d comparisons", len(r.Comparisons))
	}
	if err := c.lossless(); err == nil || !strings.Contains(err.Error(), "ours lost 5 packets, and stenotype none") {
		t.Error(err)
	}
	if note := c.notes()[0]; !strings.Contains(note, "ours 3000 ns and 80 bytes on disk a packet, lost 5 of 5000") {
		t.Error(note)
	}
	if notes := strings.Join(c.misses(), " "); !strings.Contains(notes, "costs 1.50 of stenotype's") || !strings.Contains(notes, "takes 80.0 bytes") {
		t.Errorf("misses: %q", notes)
	}
	other := c.seenBy(3, bars{stenotype: 2})
	if want := []string{"slower", "stenotype", "slow"}; !slices.Equal(other.names, want) || other.Samples[1][0].lost != 5 || other.Samples[1][2].cost != 9*time.Millisecond || other.misses() != nil {
		t.Errorf("seen by another: %+v", other)
	}
	c.Samples[0][1].lost, c.Samples[0][2].lost = 1, 1
	if err := c.lossless(); err != nil {
		t.Error(err)
	}
}
