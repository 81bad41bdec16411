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
	batches   bool // number batches: the time of each is that of its first packet
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

// putBatch records when the first packet of a batch arrived; 0: it has none.
func (a *latencyTracker) putBatch(number, at uint64) {
	a.last = number
	a.at[number&uint64(len(a.at)-1)] = at
}

// newBatchTracker returns a tracker of batches.
func newBatchTracker() latencyTracker {
	return latencyTracker{at: make([]uint64, 2*queueDepth), batches: true}
}

// record records the packets that the output has submitted or written since the last call.
func (a *latencyTracker) record(t *tracker) {
	submitted, written := t.submitted.Packets, t.written.Packets
	if a.batches {
		submitted, written = t.submitted.Number, t.written.Number
	}
	if a.submitted == submitted && a.written == written {
		return
	}
	now := uint64(time.Now().UnixNano())
	a.upTo(&a.submitted, submitted, now, &a.times.Submitted)
	a.upTo(&a.written, written, now, &a.times.Done)
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
		if at := a.at[*from&mask]; at != 0 || !a.batches {
			run.Record(pipeline.Elapsed(now, at))
		}
	}
	run.End()
}
