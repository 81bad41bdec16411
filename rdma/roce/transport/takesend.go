package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// takeSend takes a packet of a SEND.
func (q *QueuePair) takeSend(a *Arrival) nakCode {
	m, o, n := &q.message, a.Header.Opcode, a.length()
	if v := q.ready(a, n); v != accepted {
		return v
	}
	if wire.CheckPayload(o, int(n), int(q.mtu)) != wire.WellFormed {
		return invalid
	}
	if o.Starts() {
		m.kind, m.length = wire.Send, 0
	}
	if o.HasInvalidate() && !q.engine.keys.invalidate(a.Header.Invalidate, q.config.Domain, q.qpn) {
		return forbidden
	}
	if v := q.takeIn(a, n); v != accepted {
		return v
	}
	m.length += uint32(n)
	if o.Ends() {
		q.deliver(a, rdma.Received, m.length)
	}
	return accepted
}

// ready finds where a packet of a SEND can go.
func (q *QueuePair) ready(a *Arrival, n uint64) nakCode {
	have := uint64(0)
	if !a.Header.Opcode.Starts() {
		have = uint64(q.message.length)
	}
	if q.loans != nil {
		return q.readyToLend(len(a.Payload), have+n)
	}
	if !q.receive.taken && !q.takeReceive() {
		return notReady
	}
	if have+n > q.receive.room {
		return tooLong
	}
	return accepted
}

// readyToLend says whether so many frames can be lent for a message of at least length bytes, and that be delivered.
func (q *QueuePair) readyToLend(frames int, length uint64) nakCode {
	switch {
	case uint64(q.loans.coming())+uint64(frames) > uint64(q.loans.limit) || length > MaxMessage:
		return tooLong // and will never fit
	case !q.loans.room(frames) || !q.config.ReceiveCQ.room(1):
		return notReady
	}
	return accepted
}

// takeReceive takes the next receive, and says whether there was one.
func (q *QueuePair) takeReceive() bool {
	if !q.rq.take(&q.receive) {
		return false
	}
	q.touch()
	if q.rq.shared && q.rq.below() {
		q.engine.event(rdma.SharedQueueLimit, 0)
	}
	return true
}

// takeIn keeps the payload's frames, or copies it into the receive.
func (q *QueuePair) takeIn(a *Arrival, n uint64) nakCode {
	if n == 0 {
		return accepted
	}
	if q.loans != nil {
		q.loans.lend(a.Payload, a.Header.Opcode.Ends())
		a.Kept = true
		q.engine.counts.add(LoanedFrames, uint64(len(a.Payload)))
		return accepted
	}
	r := &q.receive
	if !q.engine.scatter(q.config.Domain, r.sges[:r.count], uint64(q.message.length), a.Payload) {
		return faulty
	}
	return accepted
}

// deliver completes the receive of a message that is here. Of one in frames the ID is where its first byte lies.
func (q *QueuePair) deliver(a *Arrival, k rdma.Kind, length uint32) {
	h := &a.Header
	c := rdma.WorkCompletion{ID: q.receive.id, Kind: k, Length: length, RemoteQPN: h.SourceQPN}
	if q.loans != nil {
		c.ID = q.loans.firstAddr()
		q.loans.deliver()
	}
	switch {
	case h.Opcode.HasImmediate():
		c.Flags |= rdma.HasImmediate
		c.SetImmediate(h.Immediate)
	case h.Opcode.HasInvalidate():
		c.Flags |= rdma.HasInvalidated
		c.SetImmediate(rdma.Invalidate(h.Invalidate))
	}
	if q.config.Transport == rdma.UD {
		c.Flags |= rdma.HasGRH
	}
	q.receive.taken = false
	q.complete(q.config.ReceiveCQ, &c, h.Solicited)
}
