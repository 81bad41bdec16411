package main

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLongTurns asks the kernel what turns threads have, one that was there and one that was made later.
func TestLongTurns(t *testing.T) {
	turns := func() uint64 {
		a, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Error(err)
			return 0
		}
		return a.Runtime
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := turns()
	takeTurns(turnsOf(job{Test: latencyTest}))
	defer takeTurns(usualTurns)
	if before == 0 {
		if got := turns(); got != 0 { // Linux before 6.12 has them not, and says 0
			t.Errorf("turns of %d ns on a kernel that has none", got)
		}
		return
	}
	later := make(chan uint64)
	go func() {
		runtime.LockOSThread() // not released: the thread ends with the goroutine
		later <- turns()
	}()
	got := [2]uint64{turns(), <-later}
	if got != [2]uint64{longTurns, longTurns} {
		t.Errorf("turns of %v ns, want %d", got, uint64(longTurns))
	}
	if takeTurns(turnsOf(job{Test: bandwidthTest})); turns() != before {
		t.Errorf("turns of %d ns again, want %d", turns(), before)
	}
}
