package pipeline

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// TestLevel: a source stops at the high watermark and continues at the low one. The status has the number and
// the length of these pauses.
func TestLevel(t *testing.T) {
	l := watermarks{limits: config.Watermarks{High: 100, Low: 40}}
	now := time.Unix(1, 0)
	for i, step := range []struct {
		held int
		open bool
	}{{0, true}, {99, true}, {100, false}, {99, false}, {41, false}, {40, true}, {99, true}, {180, false}, {0, true}} {
		if got := l.open(step.held, now); got != step.open {
			t.Errorf("step %d: with %d held: %v", i, step.held, got)
		}
		now = now.Add(time.Second)
	}
	var s status.Flow
	l.observe(&s)
	if want := (status.Watermarks{Held: 0, Most: 180, High: 100, Low: 40, Pauses: 2, Paused: 4}); *s.Level != want {
		t.Errorf("%+v, want %+v", *s.Level, want)
	}
	var none watermarks
	if !none.open(1<<30, now) || none.pauses.Load() != 0 {
		t.Error("without watermarks the source is stopped")
	}
	if n := testing.AllocsPerRun(100, func() { l.open(150, now); l.open(10, now) }); n != 0 {
		t.Errorf("looking allocates %v times", n)
	}
}
