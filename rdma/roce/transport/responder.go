package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// responder is the state of the peer's requests.
type responder struct {
	expected wire.PSN
	msn      uint32
	// message is the message that is being received.
	message message
	receive receive // taken for the current message, or left from a dropped one
	replies replies

	ackCoalescing

	// What to send once the READs and atomics before are answered.
	ack     bool          // an ACK of everything before expected
	missing bool          // a NAK: expected is missing
	dropped wire.PSN      // the last packet dropped since then
	nakked  bool          // the NAK was sent: one is enough until expected arrives
	unready bool          // a NAK: there is no receive for expected
	refused wire.Syndrome // a NAK: packet at was refused; 0: none
	at      wire.PSN      // of refused
}

// message is a message that is being received.
type message struct {
	kind   wire.Kind // Send or Write, NoKind between messages
	length uint32    // bytes received
	left   uint32    // of a WRITE: bytes still missing
	va     uint64    // of a WRITE: the address of the next byte
	rkey   uint32
	total  uint32 // of a WRITE
}

// begin prepares the responder for a peer whose first packet has number expected.
func (r *responder) begin(expected wire.PSN) {
	*r = responder{expected: expected, replies: r.replies, ackCoalescing: noCoalescing}
	r.replies.clear()
}

// silence clears everything that was still to be sent.
func (r *responder) silence() {
	r.ack, r.pending, r.missing, r.nakked, r.unready, r.refused = false, 0, false, false, false, 0
	r.replies.clear()
}

// abandon discards the current message.
func (r *responder) abandon(q *QueuePair) {
	r.message.kind = wire.NoKind
	if q.loans != nil {
		q.engine.freed = q.loans.abandon(q.engine.freed)
	}
}

// request processes a packet of an RC request. IBTA specification, volume 1, 9.7.4.
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
	if q.State() == rdma.Error { // the completion queue was full
		return
	}
	if h.AckReq && h.Opcode.CarriesPayload() { // READs and atomics have answers of their own
		q.scheduleACK()
	}
}

// ahead drops a packet because an earlier one is missing, and sends one NAK.
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

// again answers a request that was executed before, without executing it again.
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

// refuse sends a NAK. Any NAK but receiver-not-ready ends the queue pair.
func (q *QueuePair) refuse(v nakCode) {
	e, c := q.engine, &consequences[v]
	e.drop(c.drop)
	e.lists[answering].add(q)
	if v == notReady {
		q.unready, q.nakked = true, true // packets after it must not cause another NAK
		return
	}
	q.refused, q.at = c.syndrome, q.expected
	q.breakDown(c.status, c.event)
}

// breakDown ends the queue pair because of a request of the peer.
func (q *QueuePair) breakDown(s rdma.Status, k rdma.EventKind) {
	q.engine.event(k, q.qpn)
	if q.receive.taken {
		q.finishReceive(s)
	}
	if q.State() != rdma.Error {
		q.fail()
	}
}

// execute executes the expected packet. If it refuses the packet, it has changed nothing that the
// peer could notice.
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

// takeSend processes a packet of a SEND.
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

// ready finds the memory for a packet of a SEND.
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

// readyToLend checks whether this number of frames can be lent for a message of at least length
// bytes, and whether the message can be completed.
func (q *QueuePair) readyToLend(frames int, length uint64) nakCode {
	switch {
	case uint64(q.loans.coming())+uint64(frames) > uint64(q.loans.limit) || length > MaxMessage:
		return tooLong // it will never fit
	case !q.loans.room(frames) || !q.config.ReceiveCQ.room(1):
		return notReady
	}
	return accepted
}

// takeReceive takes the next receive, and reports whether there was one.
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

// takeIn keeps the payload's frames, or copies the payload into the receive.
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

// deliver completes the receive of a whole message. With loans the completion's ID is the address
// of the first byte.
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

// takeRead processes a READ request. Send answers it.
func (q *QueuePair) takeRead(h *wire.Header) nakCode {
	switch {
	case q.attrs.Access&rdma.RemoteRead == 0 || q.replies.full() || h.DMALength > MaxMessage:
		return invalid
	case !q.mayRead(h.RKey, h.VA, h.DMALength):
		return forbidden
	}
	last := h.PSN.Add(packets(h.DMALength, q.mtu) - 1)
	q.keep(reply{kind: wire.ReadRequest, first: h.PSN, last: last, va: h.VA, length: h.DMALength, rkey: h.RKey})
	return accepted
}

// mayRead reports whether the peer may read there. A READ of no bytes is not checked.
func (q *QueuePair) mayRead(rkey uint32, va uint64, n uint32) bool {
	return n == 0 || q.engine.keys.remote(rkey, q.config.Domain, q.qpn, va, uint64(n), rdma.RemoteRead)
}

// keep counts a READ or atomic as a message, and stores its reply to be sent.
func (q *QueuePair) keep(p reply) {
	q.msn = (q.msn + 1) & mask24
	p.msn = q.msn
	q.expected = p.last.Add(1)
	q.replies.add(p)
	q.engine.lists[answering].add(q)
}

// takeAtomic executes an atomic. It keeps the old value to answer a repeated request.
func (q *QueuePair) takeAtomic(h *wire.Header) nakCode {
	switch {
	case q.attrs.Access&rdma.RemoteAtomic == 0 || q.replies.full() || h.VA%8 != 0:
		return invalid
	case !q.engine.keys.remote(h.RKey, q.config.Domain, q.qpn, h.VA, 8, rdma.RemoteAtomic):
		return forbidden
	}
	word := wordAt(q.engine.data, h.VA)
	var original uint64
	if h.Opcode.Kind() == wire.FetchAdd {
		original = word.Add(h.SwapAdd) - h.SwapAdd
	} else {
		original = compareSwap(word, h.Compare, h.SwapAdd)
	}
	q.keep(reply{kind: h.Opcode.Kind(), first: h.PSN, last: h.PSN, va: h.VA, rkey: h.RKey, original: original})
	return accepted
}

// takeWrite processes a packet of a WRITE. It checks the key with each packet, because the key may
// be closed between two packets.
func (q *QueuePair) takeWrite(a *Arrival) nakCode {
	m, h, n := &q.message, &a.Header, a.length()
	if q.attrs.Access&rdma.RemoteWrite == 0 {
		return invalid
	}
	if h.Opcode.HasImmediate() && !q.readyForWrite() {
		return notReady
	}
	if h.Opcode.Starts() {
		*m = message{kind: wire.Write, va: h.VA, rkey: h.RKey, left: h.DMALength, total: h.DMALength}
	}
	if !m.fits(h.Opcode, n, q.mtu) {
		return invalid
	}
	if m.left > 0 && !q.engine.keys.remote(m.rkey, q.config.Domain, q.qpn, m.va, uint64(m.left), rdma.RemoteWrite) {
		return forbidden
	}
	q.engine.putPayload(m.va, a.Payload)
	m.va += n
	m.left -= uint32(n)
	if h.Opcode.HasImmediate() {
		q.deliver(a, rdma.ReceivedWrite, m.total)
	}
	return accepted
}

// fits reports whether a packet of n bytes matches its opcode and the length of the message.
func (m *message) fits(o wire.Opcode, n uint64, mtu uint32) bool {
	if m.total > MaxMessage || wire.CheckPayload(o, int(n), int(mtu)) != wire.WellFormed {
		return false
	}
	if o.Ends() {
		return n == uint64(m.left)
	}
	return n < uint64(m.left)
}

// readyForWrite checks whether a WRITE with immediate can be completed.
func (q *QueuePair) readyForWrite() bool {
	if q.loans != nil {
		return q.config.ReceiveCQ.room(1)
	}
	return q.receive.taken || q.takeReceive()
}

// sendAnswers lets the queue pairs with ACKs and answers send them, in turn.
func (e *Engine) sendAnswers(out []Packet) (n int) {
	l := &e.lists[answering]
	for l.n > 0 && n < len(out) {
		q := l.next()
		room := out[n:min(len(out), n+e.config.Burst)]
		sent := q.answer(room)
		e.given += uint64(sent)
		if n += sent; sent == len(room) {
			l.add(q)
		}
	}
	return n
}

// answer writes packets to out until it is full or everything is sent, in the order of the
// requests: first the answers to READs and atomics, then an ACK or NAK.
func (q *QueuePair) answer(out []Packet) (n int) {
	if q.congests && n < len(out) {
		q.putCNP(&out[n])
		n++
	}
	for n < len(out) {
		p := q.replies.front()
		switch {
		case p != nil:
			if q.rate.limited && !q.mayLeave() {
				return n
			}
			if q.putReply(&out[n], p) {
				if q.rate.limited {
					q.left(&out[n])
				}
				n++
			}
			continue
		case !q.putNAK(&out[n]):
			return n
		}
		n++
	}
	return n
}

// putReply writes the next packet of an answer. It returns false if the right to read has ended.
func (q *QueuePair) putReply(to *Packet, p *reply) bool {
	q.header(to)
	h := &to.Header
	h.PSN, h.Syndrome, h.MSN = p.next, wire.ACK, p.msn
	if p.kind != wire.ReadRequest {
		h.Opcode, h.Original = wire.RCAtomicAcknowledge, p.original
	} else if !q.putReadData(to, p) {
		q.replies.drop()
		q.engine.drop(NoAccess)
		q.refused, q.at = wire.NAKRemoteAccess, p.next
		q.breakDown(rdma.LocalAccess, rdma.QueuePairAccess)
		return false
	}
	if p.next == p.last {
		q.replies.done(p)
		if p.last.Add(1) == q.expected { // this answer is also an ACK
			q.ack, q.pending = false, 0
		}
	}
	p.next = p.next.Add(1)
	return true
}

// putReadData points the packet at its part of the memory.
func (q *QueuePair) putReadData(to *Packet, p *reply) bool {
	offset := uint64(p.next.Distance(p.first)) * uint64(q.mtu)
	left := p.length - uint32(offset)
	n := min(left, q.mtu)
	if !q.mayRead(p.rkey, p.va+offset, left) {
		return false
	}
	to.Header.Opcode = wire.ReadResponseOpcode(p.next == p.begin, p.next == p.last)
	to.Header.Pad = wire.Pad(int(n))
	if to.Length = n; n > 0 {
		to.Pieces[0], to.Count = Piece{Addr: p.va + offset, Length: n}, 1
	}
	return true
}

// putNAK writes an ACK or NAK, if one is due.
func (q *QueuePair) putNAK(to *Packet) bool {
	syndrome, at := wire.ACK, q.expected
	switch {
	case q.refused != 0:
		syndrome, at = q.refused, q.at
		q.engine.count(NAKsSent)
	case q.unready:
		syndrome = wire.RNRNAK(q.attrs.MinRNRTimer)
		q.engine.count(RNRSent)
	case q.missing && !q.dropped.Before(q.expected):
		syndrome, q.nakked = wire.NAKSequence, true
		q.engine.count(SequenceNAKsSent)
	case q.ack:
		at = at.Add(-1)
		q.engine.count(AcksSent)
	default:
		q.missing = false
		return false
	}
	q.responder.refused, q.unready, q.missing, q.ack = 0, false, false, false
	q.pending = 0
	q.header(to)
	h := &to.Header
	h.Opcode, h.PSN, h.Syndrome, h.MSN = wire.RCAcknowledge, at, syndrome, q.msn
	return true
}

// nakCode is the result of executing a request of the peer.
type nakCode uint8

const (
	accepted nakCode = iota
	notReady
	disordered
	invalid
	tooLong
	forbidden
	faulty
	verdicts
)

// consequences holds for each nakCode: the NAK, the status of the receive that was taken for the
// message, the counter, and the event of the queue pair. IBTA specification, volume 1, 9.9.3 and
// table 60.
var consequences = [verdicts]struct {
	syndrome wire.Syndrome
	status   rdma.Status
	drop     Drop
	event    rdma.EventKind
}{
	notReady:   {drop: NoReceive},
	disordered: {wire.NAKInvalidRequest, rdma.RemoteInvalidRequest, BadSequence, rdma.QueuePairRequest},
	invalid:    {wire.NAKInvalidRequest, rdma.RemoteInvalidRequest, Invalid, rdma.QueuePairRequest},
	tooLong:    {wire.NAKInvalidRequest, rdma.LocalLength, TooLong, rdma.QueuePairRequest},
	forbidden:  {wire.NAKRemoteAccess, rdma.LocalAccess, NoAccess, rdma.QueuePairAccess},
	faulty:     {wire.NAKRemoteOperation, rdma.LocalProtection, LocalFault, rdma.QueuePairFatal},
}
