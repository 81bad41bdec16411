// Package discard is a sink that counts packets and frees them, so that a source can be measured
// alone.
package discard

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Sink = (*Sink)(nil)

// Sink counts packets and frees them.
type Sink struct {
	region  *umem.Region
	free    *umem.FreeList
	packets counter.Counter
	bytes   counter.Counter
	times   pipeline.FrameTimes
}

// New makes a sink that pushes frames to free.
func New(region *umem.Region, free *umem.FreeList) *Sink { return &Sink{region: region, free: free} }

func (s *Sink) Write(b *pipeline.Batch, now time.Time) bool {
	whole := umem.Whole(b.Held())
	if whole == 0 {
		return true
	}
	fs := b.Frames[:whole]
	packets, bytes, at := uint64(0), uint64(0), uint64(now.UnixNano())
	run := s.times.Done.Run()
	begins := true
	for i := range fs {
		bytes += uint64(fs[i].Len)
		if begins {
			run.Record(pipeline.Elapsed(at, pipeline.Arrival(s.region.Side(fs[i]), at)))
			packets++
		}
		begins = !fs[i].Continues()
	}
	run.End()
	s.free.Push(fs...)
	s.packets.Add(packets)
	s.bytes.Add(bytes)
	b.Drop(whole)
	return true
}

func (s *Sink) Observe(to *status.Flow) error {
	to.Discarded = &status.Discarded{Packets: s.packets.Load(), Bytes: s.bytes.Load()}
	to.FrameTimes = s.times.Status()
	return nil
}
