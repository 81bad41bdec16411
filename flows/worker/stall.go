package worker

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// stalls records for how long a worker polled none of its flows: other threads or the hypervisor
// had the CPU, or a system call took long. During a stall packets wait in rings, and are lost when
// the rings are full.
type stalls struct {
	since   time.Time       // last round; owned by the worker
	count   counter.Counter // stalls of minStall or longer
	longest atomic.Uint64   // nanoseconds, the longest
}

// minStall is the shortest stall that counts. At 200,000 packets per second, a ring of 4096 entries
// is full after 20 ms.
const minStall = 20 * time.Millisecond

// note records the time since the last round, less the wait that was set.
func (a *stalls) note(now time.Time, set time.Duration) {
	away := now.Sub(a.since) - set
	a.since = now
	if away <= time.Duration(a.longest.Load()) && away < minStall {
		return
	}
	if away >= minStall {
		a.count.Add(1)
	}
	if away > time.Duration(a.longest.Load()) {
		a.longest.Store(uint64(away))
	}
}

// restart ignores the time since the last round, as after a wait that ended with an event.
func (a *stalls) restart(now time.Time) { a.since = now }

func (a *stalls) status() status.Stall {
	return status.Stall{Count: a.count.Load(), Longest: time.Duration(a.longest.Load())}
}

// quantum is how long a worker's thread has run without a yield to the Go scheduler. After 10 ms
// the scheduler signals the thread. Until the thread yields, sysmon retakes its P in every system
// call, wakes another thread that finds nothing to do, and checks again every 20 µs (retake in
// runtime/proc.go). For a worker that waits a thousand times a second, that costs more than all its
// work. The scheduler does not disturb a worker that yields in time. A worker that hardly works
// must not yield: sysmon should take its P at once, so that sysmon sleeps too.
type quantum struct{ started, last time.Time }

// maxQuantum is less than the scheduler's quantum (forcePreemptNS).
const maxQuantum = 8 * time.Millisecond

// begin starts a round, and a new quantum if the last round was long ago.
func (s *quantum) begin(now time.Time) {
	if now.Sub(s.last) >= maxQuantum {
		s.started = now
	}
	s.last = now
}

// expired reports whether to yield. If so it starts a new quantum.
func (s *quantum) expired() bool {
	if s.last.Sub(s.started) < maxQuantum {
		return false
	}
	s.started = s.last
	return true
}
