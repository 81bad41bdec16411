package flows

import (
	"testing"
	"time"
)

// TestClockWatch: a clock that is set is noticed, with how far and how often; one that runs is not, nor one
// that is read late.
func TestClockWatch(t *testing.T) {
	booted, ok := 1000*time.Hour, true
	w := newClockWatch()
	w.read = func() (time.Duration, bool) { return booted, ok }
	w.booted = booted
	for _, c := range []struct {
		by    time.Duration
		ok    bool
		steps uint64
		step  time.Duration
	}{
		{0, true, 0, 0},
		{leastStep - 1, true, 0, 0},
		{5 * time.Second, true, 1, 5 * time.Second},
		{5 * time.Second, true, 1, 5 * time.Second},
		{time.Hour, false, 1, 5 * time.Second}, // the readings say nothing
		{-time.Second, true, 2, -6 * time.Second},
	} {
		booted, ok = 1000*time.Hour+c.by, c.ok
		got := w.look()
		if got.Steps != c.steps || got.Step != c.step || (got.Noticed != nil) != (c.steps > 0) {
			t.Errorf("with the clock %v from where it was: %+v, want %d steps, the last by %v", c.by, got, c.steps, c.step)
		}
	}
	if own, ok := readClock(); !ok || time.Since(time.Unix(0, int64(own))) < time.Second {
		t.Errorf("the machine was booted at %v (%v)", time.Unix(0, int64(own)), ok)
	}
	if fresh := newClockWatch().look(); fresh.Steps != 0 {
		t.Errorf("nobody set the clock: %+v", fresh)
	}
}
