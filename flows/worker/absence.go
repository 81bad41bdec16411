package worker

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// absences are the times for which a worker looked at none of its flows: what ran instead on its processor, or on that of this machine's host,
// or a system call that took long. Packets wait meanwhile in rings, and are lost where those are full.
type stalls struct {
	since   time.Time       // when the flows were looked at last; the worker's
	count   counter.Counter // of those as long as absence
	longest atomic.Uint64   // nanoseconds, the longest
}

// absence is how long the flows go unattended before that is counted: the most a ring of 4096 holds, of 200,000 packets a second.
const minStall = 20 * time.Millisecond

// note counts the time since the flows were looked at last, less a wait the worker was set to.
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

// attend begins anew, as after a wait that ends when there is something to do.
func (a *stalls) restart(now time.Time) { a.since = now }

func (a *stalls) status() status.Stall {
	return status.Stall{Count: a.count.Load(), Longest: time.Duration(a.longest.Load())}
}
