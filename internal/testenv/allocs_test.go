package testenv

import "testing"

// TestAllocsPerRun: what f allocates each time is found, and what something else allocates once is not.
func TestAllocsPerRun(t *testing.T) {
	var kept []byte
	if n := AllocsPerRun(t, 10, func() { kept = make([]byte, 1<<12) }); n != 1 {
		t.Errorf("%v allocations, not 1", n)
	}
	calls := 0
	if n := AllocsPerRun(t, 10, func() {
		if calls++; calls <= 5 {
			kept = make([]byte, 1<<12)
		}
	}); n != 0 || len(kept) == 0 {
		t.Errorf("%v allocations in each run, though half of them make none", n)
	}
}
