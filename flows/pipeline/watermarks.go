package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// watermarks bound the frames in flight between the source and the sink. At the high watermark the source is
// no longer polled, until the number falls to the low watermark. They are checked once a round, so a batch of
// each queue may come on top. The worker owns them; any goroutine may read the counters.
type watermarks struct {
	limits    config.Watermarks
	closed    bool      // the source is not polled
	countedTo time.Time // paused is counted up to this time

	inFlight atomic.Int64 // the worker is the only writer
	most     atomic.Int64
	pauses   counter.Counter
	paused   counter.Counter // nanoseconds
}

// open reports whether the source may be polled in this round.
func (w *watermarks) open(frames int, now time.Time) bool {
	if n := int64(frames); w.inFlight.Load() != n {
		w.inFlight.Store(n)
		if n > w.most.Load() {
			w.most.Store(n)
		}
	}
	switch {
	case w.limits.High == 0:
		return true
	case w.closed:
		w.paused.Add(uint64(max(0, now.Sub(w.countedTo))))
		w.closed = frames > w.limits.Low
	case frames >= w.limits.High:
		w.closed = true
		w.pauses.Add(1)
	}
	w.countedTo = now
	return !w.closed
}

func (w *watermarks) observe(s *status.Flow) {
	s.Level = &status.Watermarks{
		Held: w.inFlight.Load(), Most: w.most.Load(), High: w.limits.High, Low: w.limits.Low,
		Pauses: w.pauses.Load(), Paused: float64(w.paused.Load()) / 1e9,
	}
}
