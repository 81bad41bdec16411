package testenv

import "testing"

// TestAllocsPerRun: what our code allocates in each run is found, and what it allocates in some of them, or a test
// allocates, is not.
func TestAllocsPerRun(t *testing.T) {
	NoRace(t, "it counts nothing then")
	if n := AllocsPerRun(t, 10, func() { _ = describe(-1, "socket:") }); n < 1 {
		t.Errorf("%v allocations", n)
	}
	calls := 0
	if n := AllocsPerRun(t, 10, func() {
		if calls++; calls <= 5 {
			_ = describe(-1, "socket:")
		}
	}); n != 0 {
		t.Errorf("%v allocations in each run, though half of them make none", n)
	}
	var kept []byte
	if n := AllocsPerRun(t, 10, func() { kept = make([]byte, 1<<12) }); n != 0 || len(kept) == 0 {
		t.Errorf("%v allocations of the test", n)
	}
}
