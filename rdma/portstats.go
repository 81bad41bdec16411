package rdma

import (
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// portCounters are a port's own, written by its thread only.
type portCounters struct {
	received, bytesReceived, immediates, sent, bytesSent, refused, inlined uint64
}

// portStats are the counters others may read, stored once a batch by the port's thread.
type portStats struct {
	count    portCounters
	shown    [7]counter.Counter
	statuses [statuses]atomic.Uint64
}

func (c *portCounters) list() [7]uint64 {
	return [7]uint64{c.received, c.bytesReceived, c.immediates, c.sent, c.bytesSent, c.refused, c.inlined}
}

func (s *portStats) sentOne(f umem.Frame) {
	s.count.bytesSent += uint64(f.Len)
	if !f.Continues() {
		s.count.sent++
	}
}

// failed counts a completion that did not succeed.
func (s *portStats) failed(status Status) { s.statuses[min(status, General)].Add(1) }

// publish shows the counters that changed.
func (s *portStats) publish() {
	for i, v := range s.count.list() {
		s.shown[i].Set(v)
	}
}

// PortStats are a port's counters since it was opened.
type PortStats struct {
	Received, BytesReceived uint64            // messages, and bytes of them
	Immediates              uint64            // of the messages those with an immediate
	Sent, BytesSent         uint64            // messages that completed, and bytes of them
	Refused                 uint64            // messages that could not be sent at all
	Inlined                 uint64            // bytes of messages that were copied into their work requests, see Inline
	Failed                  map[Status]uint64 // completions that did not succeed
}

// Stats may be called from any goroutine.
func (p *MessagePort) Stats() PortStats { return p.stats.read() }

func (s *portStats) read() PortStats {
	at := func(i int) uint64 { return s.shown[i].Load() }
	out := PortStats{Received: at(0), BytesReceived: at(1), Immediates: at(2), Sent: at(3), BytesSent: at(4), Refused: at(5), Inlined: at(6), Failed: map[Status]uint64{}}
	for status := range s.statuses {
		if n := s.statuses[status].Load(); n > 0 {
			out.Failed[Status(status)] = n
		}
	}
	return out
}
