package flows

import (
	"math/bits"
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/umem"
)

// arrivals remembers when the packets of a writer arrived, until they are written. Packets are numbered in the order in which they are put into
// batches, from 1, as a track numbers them. It belongs to the worker's thread.
type arrivals struct {
	region    *umem.Region
	at        []uint64 // by number, a ring: nanoseconds since 1970
	last      uint64   // number given
	submitted uint64   // recorded up to here
	written   uint64
	times     frameTimes
}

// mostArrivals bounds a ring; of more packets under way the oldest are not recorded.
const mostArrivals = 1 << 18

// newArrivals remembers so many packets at most.
func newArrivals(region *umem.Region, most uint64) arrivals {
	size := uint64(1) << bits.Len64(min(most, mostArrivals)-1)
	return arrivals{region: region, at: make([]uint64, size)}
}

// put notes whole packets that a batch has taken.
func (a *arrivals) put(fs []umem.Frame, now time.Time) {
	mask, at := uint64(len(a.at)-1), uint64(now.UnixNano())
	begins := true
	for i := range fs {
		if begins {
			a.last++
			a.at[a.last&mask] = arrived(a.region.Side(fs[i]), at)
		}
		begins = !fs[i].Continues()
	}
}

// record notes how far a sink has come. The clock is looked at when it has.
func (a *arrivals) record(t *track) {
	if a.submitted == t.submitted.Packets && a.written == t.written.Packets {
		return
	}
	now := uint64(time.Now().UnixNano())
	a.upTo(&a.submitted, t.submitted.Packets, now, &a.times.submitted)
	a.upTo(&a.written, t.written.Packets, now, &a.times.done)
}

// upTo records the packets from the last recorded to one of a number.
func (a *arrivals) upTo(from *uint64, to, now uint64, times *latency.Shared) {
	if kept := uint64(len(a.at)); a.last > kept {
		*from = max(*from, a.last-kept)
	}
	mask := uint64(len(a.at) - 1)
	run := times.Run()
	for *from < to {
		*from++
		run.Record(since(now, a.at[*from&mask]))
	}
	run.End()
}
