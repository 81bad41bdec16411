package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// responder is what a queue pair knows of its peer's requests.
type responder struct {
	expected wire.PSN
	msn      uint32
	message  message
	receive  receive // taken for the message, or kept from one that was dropped
	replies  replies

	ackCoalescing // with acknowledgements

	// What is to be said once the READs and atomics before are answered.
	ack     bool          // that everything before expected is here
	missing bool          // that expected is missing
	dropped wire.PSN      // the last packet that was dropped since it was
	nakked  bool          // the peer was told: once is enough until it comes
	unready bool          // that there is no receive for expected
	refused wire.Syndrome // that refusedAt was refused; 0: nothing was
	at      wire.PSN      // which packet was refused
}

// message is one that is coming in.
type message struct {
	kind   wire.Kind // Send or Write, NoKind between messages
	length uint32    // that came of it
	left   uint32    // of a WRITE: bytes that are to come
	va     uint64    // of a WRITE: where they go
	rkey   uint32
	total  uint32 // of a WRITE
}

// begin readies the responder for a peer whose first packet has that number.
func (r *responder) begin(expected wire.PSN) {
	*r = responder{expected: expected, replies: r.replies, ackCoalescing: impatient}
	r.replies.clear()
}

// silence takes back what the peer is to be told.
func (r *responder) silence() {
	r.ack, r.held, r.missing, r.nakked, r.unready, r.refused = false, 0, false, false, false, 0
	r.replies.clear()
}

// abandon forgets the message that is coming in.
func (r *responder) abandon(q *QueuePair) {
	r.message.kind = wire.NoKind
	if q.loans != nil {
		q.engine.freed = q.loans.abandon(q.engine.freed)
	}
}

// request takes a packet of a request of RC. IBTA specification, volume 1, 9.7.4.
func (q *QueuePair) request(a *Arrival) {
	e, h := q.engine, &a.Header
	switch d := h.PSN.Distance(q.expected); {
	case d > 0:
		q.ahead(h.PSN)
		return
	case d < 0:
		e.count(DuplicateRequests)
		q.again(h)
		return
	}
	q.nakked = false
	if v := q.execute(a); v != accepted {
		q.refuse(v)
		return
	}
	if q.State() == rdma.Error { // the program could not be told: its completion queue is full
		return
	}
	if h.AckReq && h.Opcode.CarriesPayload() { // the others have answers of their own
		q.scheduleACK()
	}
}

// ahead drops a packet in front of which one is missing, and tells the peer once.
func (q *QueuePair) ahead(p wire.PSN) {
	q.engine.count(OutOfSequence)
	q.engine.drop(AheadOfSequence)
	if !q.missing || p.After(q.dropped) {
		q.dropped = p
	}
	if !q.nakked {
		q.nakked, q.missing = true, true
		q.engine.lists[answering].add(q)
	}
}

// again answers a request that was executed before, without executing it.
func (q *QueuePair) again(h *wire.Header) {
	switch h.Opcode.Kind() {
	case wire.ReadRequest, wire.CompareSwap, wire.FetchAdd:
		if !q.replies.replay(h, q.mtu, q.config.FreshReads) {
			q.engine.drop(StaleRequest)
			return
		}
	default:
		q.repeated()
		return
	}
	q.engine.lists[answering].add(q)
}

// refuse says no. All but a receiver that is not ready is the end of the queue pair.
func (q *QueuePair) refuse(v nakCode) {
	e, c := q.engine, &consequences[v]
	e.drop(c.drop)
	e.lists[answering].add(q)
	if v == notReady {
		q.unready, q.nakked = true, true // what comes behind it is not to be asked for again
		return
	}
	q.refused, q.at = c.syndrome, q.expected
	q.breakDown(c.status, c.event)
}

// breakDown ends the queue pair for something its peer asked for.
func (q *QueuePair) breakDown(s rdma.Status, k rdma.EventKind) {
	q.engine.event(k, q.qpn)
	if q.receive.taken {
		q.finishReceive(s)
	}
	if q.State() != rdma.Error {
		q.fail()
	}
}

// execute does what a packet asks for that is the expected one. Only if it is accepted has anything
// changed that the peer could notice.
func (q *QueuePair) execute(a *Arrival) (v nakCode) {
	o, m := a.Header.Opcode, &q.message
	if inside := m.kind != wire.NoKind; inside == o.Starts() || inside && m.kind != o.Kind() {
		return disordered
	}
	switch o.Kind() {
	case wire.Send:
		v = q.takeSend(a)
	case wire.Write:
		v = q.takeWrite(a)
	case wire.ReadRequest:
		return q.takeRead(&a.Header)
	default:
		return q.takeAtomic(&a.Header)
	}
	if v == accepted {
		q.expected = a.Header.PSN.Add(1)
		if o.Ends() {
			m.kind = wire.NoKind
			q.msn = (q.msn + 1) & mask24
		}
	}
	return v
}
