package pairs

import (
	"testing"
	"time"
)

// TestBusy: Busy finds the processor time that the test burns.
func TestBusy(t *testing.T) {
	before := busyOf(t)
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
	}
	if got := busyOf(t) - before; got < 30*time.Millisecond { // others may have been busy then
		t.Errorf("the machine was busy for %v", got)
	}
}

func busyOf(t *testing.T) time.Duration {
	t.Helper()
	busy, err := Busy()
	if err != nil {
		t.Fatal(err)
	}
	return busy
}

func TestIdle(t *testing.T) {
	got, cpus, err := idle("cpu  1 2 3 100 20 5 6 7 8 9\ncpu0 1\ncpu3 1\nintr 5 cpu\n")
	if got != 1270*time.Millisecond || cpus != 2 || err != nil {
		t.Errorf("%v, %d, %v", got, cpus, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3 4 5 6 7", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 x 5 6 7 8"} {
		if got, _, err := idle(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}
