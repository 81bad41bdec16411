package pipeline

import (
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/umem"
)

// frameTimes is how long packets took from when they arrived: as the card or the kernel stamped them, else from when they were taken from the ring.
// The worker's thread records, and any reads.
type FrameTimes struct {
	Submitted latency.Shared // until the device at the other end was told of them
	Done      latency.Shared // until that was done with them: written, acknowledged by a peer, discarded
}

func (t *FrameTimes) Status() *status.FrameTimes {
	return &status.FrameTimes{Submitted: t.Submitted.Distribution(), Done: t.Done.Distribution()}
}

// arrived is when a packet did by the system's clock; where only the card's says, it is now.
func Arrival(side *umem.Side, now uint64) uint64 {
	if side.Clock != umem.SystemClock {
		return now
	}
	return side.Stamp
}

// since is the time from one moment to a later one; none, where clocks were set meanwhile.
func Elapsed(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}
