package pipeline

import (
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/umem"
)

// FrameTimes records how long after their arrival packets reached the sink's device. Arrival is the
// stamp of the card or the kernel, else the time of receiving. The worker's thread records, and any
// goroutine may read.
type FrameTimes struct {
	Submitted latency.Shared // until the packet was submitted to the device
	Done      latency.Shared // until the device was done: written, acknowledged by a peer, discarded
}

// Status converts the histograms for a status.
func (t *FrameTimes) Status() *status.FrameTimes {
	return &status.FrameTimes{Submitted: t.Submitted.Distribution(), Done: t.Done.Distribution()}
}

// Arrival is when a packet arrived by the system's clock, in nanoseconds since 1970. If the packet has no
// stamp of that clock, Arrival is now.
func Arrival(side *umem.Side, now uint64) uint64 {
	if side.Clock != umem.SystemClock {
		return now
	}
	return side.Stamp
}

// Elapsed is the time from then to now; 0 if the clock was set back.
func Elapsed(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}
