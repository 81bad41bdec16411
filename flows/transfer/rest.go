package transfer

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// rest is how the thread of a connection waits: it polls for a while, and then sleeps, for longer if nothing happens.
type rest struct {
	moved time.Time // when something happened last
	gave  time.Time // when other goroutines could run
}

// Times of a rest.
const (
	pollTime   = 50 * time.Microsecond
	shortSleep = 50 * time.Microsecond
	longSleep  = time.Millisecond
	longAfter  = 50 * time.Millisecond
	yieldEvery = 4 * time.Millisecond
)

func newRest() *rest { now := time.Now(); return &rest{moved: now, gave: now} }

// round ends a round. moved says whether something happened in it.
func (r *rest) round(now time.Time, moved bool) {
	if moved {
		r.moved = now
	}
	switch idle := now.Sub(r.moved); {
	case idle > longAfter:
		sleep(longSleep)
	case idle > pollTime:
		sleep(shortSleep)
	case now.Sub(r.gave) > yieldEvery: // goroutines hash and record
		runtime.Gosched()
		r.gave = now
	}
}

// sleep sleeps for about d. time.Sleep takes at least a millisecond if nothing else runs, because the Go scheduler then
// waits in epoll_wait(2), which counts milliseconds. An interrupted sleep is shorter.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil)
}
