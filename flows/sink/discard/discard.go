// Package discard is a sink that counts packets and frees them, so that a source can be measured
// alone.
package discard

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// Sink implements pipeline.Sink.
type Sink struct {
	region  *umem.Region
	free    *umem.FreeList
	packets counter.Counter
	bytes   counter.Counter
	times   pipeline.FrameTimes
}

// New makes a sink that pushes frames to free.
func New(region *umem.Region, free *umem.FreeList) *Sink { return &Sink{region: region, free: free} }

// Write implements pipeline.Sink.
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

// Observe implements pipeline.Sink.
func (s *Sink) Observe(to *status.Flow) error {
	to.Discarded = &status.Discarded{Packets: s.packets.Load(), Bytes: s.bytes.Load()}
	to.FrameTimes = s.times.Status()
	return nil
}

// The sink is never blocked, has no device and keeps nothing.

func (s *Sink) Reap(time.Time)                      {}
func (s *Sink) Block()                              {}
func (s *Sink) Blocked() bool                       { return false }
func (s *Sink) Flush(bool, time.Time)               {}
func (s *Sink) Kick()                               {}
func (s *Sink) InFlight() int                       { return 0 }
func (s *Sink) Drain(time.Time) (bool, error)       { return true, nil }
func (s *Sink) FDs(dst []unix.PollFd) []unix.PollFd { return dst }
func (s *Sink) Deadline(now time.Time) time.Time    { return now.Add(worker.MaxWait) }
func (s *Sink) Begin() error                        { return nil }
func (s *Sink) Full() bool                          { return false }
func (s *Sink) Check(time.Time) (waits, ends error) { return nil, nil }
func (s *Sink) Trouble() error                      { return nil }
func (s *Sink) Diagnose(err error) error            { return err }
func (s *Sink) Pending() int                        { return 0 }
func (s *Sink) Close() error                        { return nil }
func (s *Sink) Announce() []any                     { return nil }
func (s *Sink) CountLost(*status.Flow, uint64)      {}
func (s *Sink) Shrink(pipeline.Quota) (over bool)   { return false }
