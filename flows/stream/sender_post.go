package stream

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// receiveID marks the IDs of receives. Other IDs are numbers of messages.
const receiveID = 1 << 63

// Kick posts waiting messages, up to the receiver's limit.
func (s *Sender) Kick() error {
	s.post()
	s.stats.publish(s)
	return nil
}

// post posts waiting messages in batches.
func (s *Sender) post() {
	if s.spread != nil {
		s.postOverAll()
		return
	}
	for s.Connected() {
		n := s.batch()
		if n == 0 {
			return
		}
		took, err := s.link.pair.PostSend(s.requests[:n], s.elements)
		s.sent += uint64(took)
		s.stats.count.posted += uint64(took)
		s.on.posted += uint64(took)
		s.submitted()
		if err != nil {
			s.fail(fmt.Errorf("post message %d: %w", s.sent+1-s.begun, err))
			return
		}
	}
}

// batch makes requests for the next messages.
func (s *Sender) batch() (n int) {
	s.elements = s.elements[:0]
	until := min(s.limit, s.done+uint64(s.limits.send)-s.link.probe.Places(), s.granted())
	for number := s.sent + 1; n < sendBatch && number <= until; number++ {
		if number > s.out.last && !s.out.number() {
			break
		}
		s.request(&s.requests[n], number)
		n++
	}
	if n > 0 && s.asks(n) {
		s.requests[n-1].Flags = rdma.Signaled
	}
	return n
}

// asks reports whether the last of n requests must be signaled, regardless of its number.
func (s *Sender) asks(n int) bool {
	return s.config.Spares == 0 || 2*(s.sent+uint64(n)-s.done) > uint64(s.limits.send)
}

// granted returns the number of the last message for which the receiver has granted memory. It
// limits only a sender that writes.
func (s *Sender) granted() uint64 {
	if c := s.link.credits; c != nil {
		return s.begun + c.next - 1
	}
	return s.limit
}

// request makes the request of a message, and its header.
func (s *Sender) request(r *rdma.SendRequest, number uint64) {
	slot := s.out.at(number)
	m := &s.out.slots[slot]
	s.header(slot, number, s.link.origins)
	*r = rdma.SendRequest{ID: number, Op: rdma.Send, SGEs: m.elements}
	if c := s.link.credits; c != nil {
		c.remoteAddress(r)
	}
	if number%signalEvery == 0 {
		r.Flags = rdma.Signaled
	}
	s.elements = append(s.elements, s.elementsOf(slot)[:m.elements]...)
	s.stats.count.bytes += uint64(m.length)
}

// header writes the header of a message, which is the same for each retransmission in a session.
func (s *Sender) header(slot uint32, number uint64, origins bool) {
	m := &s.out.slots[slot]
	d := protocol.Data{Sequence: number - s.begun, Session: s.session, Stamp: m.stamp, Length: m.length, Checksum: m.checksum}
	if origins {
		d.Origin = m.origin
	}
	protocol.PutData(s.region.At(s.place(int(slot)), protocol.HeaderLen), &d)
}

// fail records why a link has failed, and makes Run end it.
func (s *Sender) fail(cause error) {
	if s.link == nil {
		return
	}
	if s.link.cause == nil || flushed(s.link.cause) && !flushed(cause) {
		s.link.cause = cause
	}
	select {
	case s.broken <- struct{}{}:
	default:
	}
}

// release reports the messages that the receiver has acknowledged and the device is done with.
func (s *Sender) release() {
	s.acknowledged()
	if s.spread != nil {
		s.retireRead()
		return
	}
	for to := min(s.confirm, s.done); s.out.first <= to; {
		s.out.retire(true, s.position)
	}
}

// acknowledged counts newly acknowledged messages, and records their latencies.
func (s *Sender) acknowledged() {
	from := max(s.counted, s.out.first-1) // numbers may have been abandoned
	if s.counted = max(from, s.confirm); s.counted == from {
		return
	}
	s.stats.count.acknowledged += s.counted - from
	s.heardAfter(s.out.slots[s.out.at(from+1)].since)
	s.finished(from, s.counted)
	run := s.stats.latency.Run()
	for number := from + 1; number <= s.counted; number++ {
		run.Record(uint64(s.now - s.out.slots[s.out.at(number)].since))
	}
	run.End()
}

// heardAfter notes for how long there was no acknowledgement, while a message waited for one since a time.
func (s *Sender) heardAfter(since int64) {
	if silent := s.now - max(since, s.heardAt); silent > 0 {
		s.stats.count.silence = max(s.stats.count.silence, uint64(silent))
	}
	s.heardAt = s.now
}
