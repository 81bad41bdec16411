package rdma

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/counter"
)

// grantCounters are written by the thread of the grants only.
type grantCounters struct {
	hits, misses, evictions, failed, outstanding uint64
	making, revoking                             latencySum
}

// latencySum adds up times.
type latencySum struct{ count, sum, most uint64 }

func (l *latencySum) add(nanoseconds int64) {
	l.count++
	l.sum += uint64(nanoseconds)
	l.most = max(l.most, uint64(nanoseconds))
}

// grantStats are what others may read.
type grantStats struct {
	count grantCounters
	shown [11]counter.Counter
}

func (c *grantCounters) list() [11]uint64 {
	return [...]uint64{c.hits, c.misses, c.evictions, c.failed, c.outstanding, c.making.count, c.making.sum, c.making.most,
		c.revoking.count, c.revoking.sum, c.revoking.most}
}

// publish shows the counters that changed.
func (s *grantStats) publish() {
	for i, v := range s.count.list() {
		s.shown[i].Set(v)
	}
}

// Latency is how long something took: how often it was done, how long altogether and at
// the most.
type Latency struct {
	Count    uint64
	Sum, Max time.Duration
}

// GrantStats are the counters of Grants since they were made.
type GrantStats struct {
	Hits        uint64 // grants that were there
	Misses      uint64 // grants that had to be made
	Evictions   uint64 // of those that ended, because another needed the place
	Failed      uint64 // requests that did not succeed, flushed ones included
	Outstanding uint64 // handed out now
	// Making is from the request to its completion, or the time of the call that
	// registers; Revoking likewise, evictions included.
	Making, Revoking Latency
}

// Publish shows the counters to Stats. The thread of the grants calls it once a batch.
func (g *Grants) Publish() { g.stats.publish() }

// Stats may be called from any goroutine.
func (g *Grants) Stats() GrantStats {
	at := func(i int) uint64 { return g.stats.shown[i].Load() }
	latency := func(i int) Latency {
		return Latency{Count: at(i), Sum: time.Duration(at(i + 1)), Max: time.Duration(at(i + 2))}
	}
	return GrantStats{Hits: at(0), Misses: at(1), Evictions: at(2), Failed: at(3), Outstanding: at(4), Making: latency(5), Revoking: latency(8)}
}
