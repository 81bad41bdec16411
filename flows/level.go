package flows

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// level is how many frames a flow holds between its ends: those that its source has handed on and not got back. With as many as the high watermark
// the source is not polled until there are as few as the low one, so that it is not stopped and started for each. It is looked at once a round, and
// a round takes what it takes: as much as a batch of each queue may come on top. It belongs to the worker's thread; the counters may be read from anywhere.
type level struct {
	config.Watermarks
	closed bool      // the source is not polled
	looked time.Time // while it is not: until when that is counted

	held   atomic.Int64 // the worker is the only writer of these
	most   atomic.Int64
	pauses counter.Counter
	paused counter.Counter // nanoseconds
}

// below reports whether the source may be polled in this round.
func (l *level) below(held int, now time.Time) bool {
	if n := int64(held); l.held.Load() != n {
		l.held.Store(n)
		if n > l.most.Load() {
			l.most.Store(n)
		}
	}
	switch {
	case l.High == 0:
		return true
	case l.closed:
		l.paused.Add(uint64(max(0, now.Sub(l.looked))))
		l.closed = held > l.Low
	case held >= l.High:
		l.closed = true
		l.pauses.Add(1)
	}
	l.looked = now
	return !l.closed
}

func (l *level) observe(s *FlowStatus) {
	s.Level = &LevelStatus{
		Held: l.held.Load(), Most: l.most.Load(), High: l.High, Low: l.Low,
		Pauses: l.pauses.Load(), Paused: float64(l.paused.Load()) / 1e9,
	}
}
