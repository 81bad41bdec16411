package flows

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
)

// leastStep is the least change of the system's clock that counts as a step. Servers of time that adjust the
// rate of the clock do not change it against the time since boot at all; ntpd sets it from 128 ms on.
const leastStep = 100 * time.Millisecond

// clockWatch finds out whether the system's clock was set. Any goroutine may use it.
type clockWatch struct {
	mu     sync.Mutex
	booted time.Duration // from 1970 to the boot by the system's clock, when it was looked at last; guarded by mu
	clock  status.Clock  // guarded by mu
	read   func() (booted time.Duration, ok bool)
}

func newClockWatch() *clockWatch {
	w := &clockWatch{read: readClock}
	w.booted, _ = w.read()
	return w
}

// look compares the clock with the time since boot. Both run at the same rate, so they differ by something
// else than before only if the clock was set.
func (w *clockWatch) look() status.Clock {
	w.mu.Lock()
	defer w.mu.Unlock()
	booted, ok := w.read()
	if !ok {
		return w.clock
	}
	if step := booted - w.booted; step.Abs() >= leastStep {
		now := time.Now()
		w.clock = status.Clock{Steps: w.clock.Steps + 1, Step: step, Noticed: &now}
		w.booted = booted
	}
	return w.clock
}

// readClock returns when the machine was booted by the system's clock. ok is false if the thread was always
// interrupted between the readings for so long that they say nothing.
func readClock() (booted time.Duration, ok bool) {
	var before, after unix.Timespec
	for range 10 {
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &before) != nil {
			return 0, false
		}
		now := time.Now().UnixNano()
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &after) != nil {
			return 0, false
		}
		if took := after.Nano() - before.Nano(); took < int64(leastStep/10) {
			return time.Duration(now - before.Nano() - took/2), true
		}
	}
	return 0, false
}
