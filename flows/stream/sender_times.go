package stream

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/umem"
)

// SenderTimes is how long messages took from when they arrived: the time that Send is told, or when it was called where that is no time of the system's
// clock (umem.Side). Senders of one worker may share one; anybody may read it.
type SenderTimes struct {
	Submitted latency.Shared // until the device was told of them, the first time
	Done      latency.Shared // until they were acknowledged, by each receiver
}

// arrived is when a message that is sent now did.
func (s *Sender) arrived(message []umem.Frame, stamp uint64) uint64 {
	if s.config.Times == nil || len(message) == 0 || s.region.Side(message[0]).Clock == umem.SystemClock {
		return stamp
	}
	return uint64(s.wall)
}

// submitted records the messages up to the last that was posted, but for those that had been before.
func (s *Sender) submitted() {
	if s.config.Times == nil || s.sent <= s.fresh {
		return
	}
	now := uint64(time.Now().UnixNano())
	s.fresh = max(s.fresh, s.out.first-1) // numbers may have been given up
	run := s.config.Times.Submitted.Run()
	for ; s.fresh < s.sent; s.fresh++ {
		run.Record(since(now, s.out.slots[s.out.at(s.fresh+1)].arrived))
	}
	run.End()
}

// finished records the messages behind a number up to another.
func (s *Sender) finished(from, to uint64) {
	if s.config.Times == nil {
		return
	}
	run := s.config.Times.Done.Run()
	for number := from + 1; number <= to; number++ {
		run.Record(since(uint64(s.wall), s.out.slots[s.out.at(number)].arrived))
	}
	run.End()
}

// since is the time from one moment to a later one; none, where clocks were set meanwhile.
func since(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}
