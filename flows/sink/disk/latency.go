package disk

import (
	"math/bits"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/umem"
)

// latencyTracker stores the arrival times of packets until they are written. It numbers packets
// from 1 in the order in which they enter batches, as the tracker does. It belongs to the worker's
// thread.
type latencyTracker struct {
	region    *umem.Region
	at        []uint64 // by number, a ring: nanoseconds since 1970
	last      uint64   // number of the last packet
	submitted uint64   // recorded up to here
	written   uint64
	times     pipeline.FrameTimes
}

// maxPackets bounds the ring. If more packets are in flight, the oldest are not recorded.
const maxPackets = 1 << 18

// newLatencyTracker returns a tracker for at most most packets.
func newLatencyTracker(region *umem.Region, most uint64) latencyTracker {
	size := uint64(1) << bits.Len64(min(most, maxPackets)-1)
	return latencyTracker{region: region, at: make([]uint64, size)}
}

// put records the arrival of whole packets that a batch has taken.
func (a *latencyTracker) put(fs []umem.Frame, now time.Time) {
	mask, at := uint64(len(a.at)-1), uint64(now.UnixNano())
	begins := true
	for i := range fs {
		if begins {
			a.last++
			a.at[a.last&mask] = pipeline.Arrival(a.region.Side(fs[i]), at)
		}
		begins = !fs[i].Continues()
	}
}

// record records the packets that the output has submitted or written since the last call.
func (a *latencyTracker) record(t *tracker) {
	if a.submitted == t.submitted.Packets && a.written == t.written.Packets {
		return
	}
	now := uint64(time.Now().UnixNano())
	a.upTo(&a.submitted, t.submitted.Packets, now, &a.times.Submitted)
	a.upTo(&a.written, t.written.Packets, now, &a.times.Done)
}

// upTo records the packets up to number to.
func (a *latencyTracker) upTo(from *uint64, to, now uint64, times *latency.Shared) {
	if kept := uint64(len(a.at)); a.last > kept {
		*from = max(*from, a.last-kept)
	}
	mask := uint64(len(a.at) - 1)
	run := times.Run()
	for *from < to {
		*from++
		run.Record(pipeline.Elapsed(now, a.at[*from&mask]))
	}
	run.End()
}
