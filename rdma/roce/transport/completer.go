package transport

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// respond processes an ACK, a NAK, or the data of a READ or atomic.
func (q *QueuePair) respond(now Time, a *Arrival) {
	e, h := q.engine, &a.Header
	if s := q.State(); s != rdma.ReadyToSend && s != rdma.SendDrained {
		e.drop(WrongState)
		return
	}
	switch {
	case h.PSN.Before(q.una):
		e.count(DuplicateResponses)
		return
	case !h.PSN.Before(q.sent): // it answers a packet that was never sent
		e.drop(BadPSN)
		return
	}
	if w := q.settle(h.PSN); w != nil {
		q.respondTo(now, a, w)
	}
	q.reap()
	q.checkDrained()
	if q.State() != rdma.Error && (q.cursor != q.nextWQE || q.nextWQE != q.sq.tail.Load()) {
		e.lists[sending].add(q)
	}
}

// respondTo processes a response. w is the oldest request: the response belongs to it, or its own
// answer was lost.
func (q *QueuePair) respondTo(now Time, a *Arrival, w *work) {
	before, h := q.una, &a.Header
	isRead := w.stage == started && reads(q.sq.request(q.head).Op)
	ack := h.Opcode.Kind() == wire.Acknowledge
	switch {
	case isRead && (w.last.Before(h.PSN) || ack && h.Syndrome.IsACK()):
		q.una = w.first.Add(int(w.got))
		q.progress(now, before)
		q.onImpliedNAK(now)
	case ack && h.Syndrome.IsACK():
		q.acknowledged(now, h.PSN, w)
	case ack && isRead:
		q.denied(now, h.Syndrome, w.first.Add(int(w.got)))
	case ack:
		q.denied(now, h.Syndrome, h.PSN)
	default:
		q.answered(now, a, w)
	}
}

// settle completes the SENDs and WRITEs before packet p, which a response to p acknowledges. It
// returns the request of p, or an earlier READ or atomic whose answer was lost, or nil if the queue
// pair failed.
func (q *QueuePair) settle(p wire.PSN) *work {
	for q.head != q.nextWQE {
		w := q.sq.work(q.head)
		switch {
		case w.stage == local:
		case !w.last.Before(p):
			return w
		case w.stage == failed:
			q.failHead(w.status)
			return nil
		case reads(q.sq.request(q.head).Op):
			return w
		}
		q.retire(rdma.Success)
	}
	return nil
}

// progress restores the retries and extends the deadline if something new was acknowledged.
func (q *QueuePair) progress(now Time, before wire.PSN) {
	if q.una == before {
		return
	}
	if q.psn.Before(q.una) {
		q.psn = q.una
	}
	q.reload()
	switch {
	case q.rnrWait:
	case q.una == q.sent:
		q.engine.timers.clear(q)
	default:
		q.await(now)
	}
}

// acknowledged processes an ACK of packet p, which belongs to the oldest request, a SEND or WRITE.
func (q *QueuePair) acknowledged(now Time, p wire.PSN, w *work) {
	before := q.una
	q.una = p.Add(1)
	if p == w.last && w.stage == started {
		q.retire(rdma.Success)
	}
	q.progress(now, before)
}

// denied processes a NAK of packet p. It acknowledges the packets before p.
func (q *QueuePair) denied(now Time, s wire.Syndrome, p wire.PSN) {
	before := q.una
	q.una = p
	q.progress(now, before)
	switch {
	case s.IsRNR():
		q.engine.count(RNRReceived)
		q.onRNRNAK(now, s)
	case s == wire.NAKSequence:
		q.engine.count(SequenceNAKs)
		if !q.rnrWait && q.psn != q.una { // otherwise it is about to be retransmitted
			q.retry(now)
		}
	case s == wire.NAKInvalidRequest:
		q.refusal(rdma.RemoteInvalidRequest)
	case s == wire.NAKRemoteAccess:
		q.refusal(rdma.RemoteAccess)
	case s == wire.NAKRemoteOperation:
		q.refusal(rdma.RemoteOperation)
	default:
		q.refusal(rdma.BadResponse)
	}
}

func (q *QueuePair) refusal(s rdma.Status) {
	q.engine.count(NAKsReceived)
	q.failHead(s)
}

// onRNRNAK makes the queue pair wait until the receiver may be ready.
func (q *QueuePair) onRNRNAK(now Time, s wire.Syndrome) {
	if q.rnrWait || q.psn == q.una { // refused before and not retransmitted since
		return
	}
	switch {
	case q.attrs.RNRRetries == 7:
	case q.rnrRetries == 0:
		q.engine.count(RNRRetriesExceeded)
		q.failHead(rdma.ReceiverNotReadyExceeded)
		return
	default:
		q.rnrRetries--
	}
	q.rnrWait = true
	q.goBackN()
	q.engine.timers.set(q, now.After(wire.RNRDelay(s.Value())))
}

// onImpliedNAK requests a lost answer again, because a later one arrived. It does so only once
// until something new is acknowledged.
func (q *QueuePair) onImpliedNAK(now Time) {
	if q.recovering || q.rnrWait {
		return
	}
	q.engine.count(ImpliedNAKs)
	q.recovering = true
	q.retry(now)
}

// retry retransmits everything that is not acknowledged, unless no retry is left.
func (q *QueuePair) retry(now Time) {
	e := q.engine
	if q.retries == 0 {
		e.count(RetriesExceeded)
		q.failHead(rdma.RetryExceeded)
		return
	}
	q.retries--
	e.count(Retries)
	q.goBackN()
	q.await(now)
	e.lists[sending].add(q)
}

// goBackN continues with the oldest packet that is not acknowledged.
func (q *QueuePair) goBackN() { q.cursor, q.psn, q.sinceAckReq = q.head, q.una, 0 }

// expire handles a deadline that has passed.
func (q *QueuePair) expire(now Time) {
	if q.rnrWait {
		q.rnrWait = false
		q.engine.lists[sending].add(q)
		return
	}
	if q.una == q.sent {
		return
	}
	q.engine.count(Timeouts)
	q.doublings, q.recovering = min(q.doublings+1, maxDoublings), false
	q.retry(now)
	q.reap()
}

// answered processes data of the oldest request, a READ or an atomic.
func (q *QueuePair) answered(now Time, a *Arrival, w *work) {
	r, h, before := q.sq.request(q.head), &a.Header, q.una
	if w.stage != started || !answers(h.Opcode.Kind(), r.Op) {
		q.badResponse()
		return
	}
	expected := w.first.Add(int(w.got))
	q.una = expected
	switch d := h.PSN.Distance(expected); {
	case d < 0:
		q.engine.count(DuplicateResponses)
		q.progress(now, before)
		return
	case d > 0:
		q.progress(now, before)
		q.onImpliedNAK(now)
		return
	}
	if s := q.takeAnswer(a, r, w); s != rdma.Success {
		if s == rdma.BadResponse {
			q.engine.drop(BadResponse)
		}
		q.failHead(s)
		return
	}
	w.got++
	q.una = h.PSN.Add(1)
	if h.PSN == w.last {
		q.retire(rdma.Success)
	}
	q.progress(now, before)
}

func answers(k wire.Kind, op rdma.Op) bool {
	return k == wire.ReadResponse && op == rdma.Read || k == wire.AtomicAcknowledge && isAtomic(op)
}

func (q *QueuePair) badResponse() {
	q.engine.drop(BadResponse)
	q.failHead(rdma.BadResponse)
}

// takeAnswer places the data. It ignores whether the opcode says first, middle or last: peers
// differ in what they send when a READ resumes in its middle.
func (q *QueuePair) takeAnswer(a *Arrival, r *rdma.SendRequest, w *work) rdma.Status {
	h := &a.Header
	if h.Opcode.HasAETH() && !h.Syndrome.IsACK() {
		return rdma.BadResponse
	}
	sges := q.sq.elements(q.head)
	if isAtomic(r.Op) {
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], h.Original)
		return q.placed(q.engine.scatterBytes(q.config.Domain, sges, 0, b[:]))
	}
	offset := uint64(w.got) * uint64(q.mtu)
	if a.length() != min(uint64(w.length)-offset, uint64(q.mtu)) {
		return rdma.BadResponse
	}
	return q.placed(q.engine.scatter(q.config.Domain, sges, offset, a.Payload))
}

func (q *QueuePair) placed(ok bool) rdma.Status {
	if !ok {
		q.engine.drop(LocalFault)
		return rdma.LocalProtection
	}
	return rdma.Success
}

var doneKinds = [...]rdma.Kind{rdma.Write: rdma.WriteDone, rdma.WriteImmediate: rdma.WriteDone, rdma.Send: rdma.SendDone, rdma.SendImmediate: rdma.SendDone,
	rdma.Read: rdma.ReadDone, rdma.CompareSwap: rdma.CompareSwapDone, rdma.FetchAdd: rdma.FetchAddDone, rdma.LocalInvalidate: rdma.LocalInvalidateDone,
	opBind: rdma.BindDone, rdma.SendInvalidate: rdma.SendDone}

// retire completes the oldest request. A success gives a completion only if the request is
// signaled.
func (q *QueuePair) retire(s rdma.Status) {
	r, w := q.sq.request(q.head), q.sq.work(q.head)
	c := rdma.WorkCompletion{ID: r.ID, Status: s, Kind: doneKinds[r.Op]}
	if reads(r.Op) && w.stage == started {
		c.Length = w.length
		q.reading--
	}
	wanted := s != rdma.Success || q.config.SignalAll || r.Flags&rdma.Signaled != 0
	if s == rdma.WorkFlushed {
		q.engine.count(Flushed)
	}
	w.stage = posted
	q.head++
	if int32(q.cursor-q.head) < 0 {
		q.cursor = q.head
	}
	if int32(q.nextWQE-q.head) < 0 {
		q.nextWQE = q.head
	}
	q.touch()
	if wanted {
		q.complete(q.config.SendCQ, &c, false)
	}
}

// reap completes, oldest first, the requests that have no packets and the one that failed locally.
func (q *QueuePair) reap() {
	for q.head != q.nextWQE {
		w := q.sq.work(q.head)
		switch w.stage {
		case local:
			q.retire(rdma.Success)
		case failed:
			q.failHead(w.status)
			return
		default:
			return
		}
	}
}

// failHead ends the oldest request with an error, and with it the queue pair.
func (q *QueuePair) failHead(s rdma.Status) {
	q.retire(s)
	if q.State() != rdma.Error { // a full completion queue has done it already
		q.sendFailed()
	}
}

// depart completes the UC and UD requests whose packets have left, and reports whether others still
// wait for that.
func (q *QueuePair) depart() bool {
	for q.head != q.cursor {
		w := q.sq.work(q.head)
		if w.stage == started && w.ticket > q.engine.left {
			return true
		}
		if w.stage == failed {
			break
		}
		q.retire(rdma.Success)
	}
	q.reap()
	q.checkDrained()
	return false
}

// fail puts the queue pair into Error and flushes everything that is posted. A NAK that gives the
// reason, and the answers before it, are still sent.
func (q *QueuePair) fail() {
	q.state.Store(uint32(rdma.Error))
	q.engine.timers.clear(q)
	q.responder.abandon(q)
	if q.responder.refused == 0 {
		q.silence()
	}
	q.flush()
	if q.rq != nil && q.rq.shared {
		q.engine.event(rdma.LastReceive, q.qpn)
	}
}

// flush completes what is posted with WorkFlushed: first the sends, then the receives.
func (q *QueuePair) flush() {
	q.flushSends()
	if q.receive.taken {
		q.finishReceive(rdma.WorkFlushed)
	}
	if q.rq == nil || q.rq.shared {
		return
	}
	for q.rq.take(&q.receive) {
		q.finishReceive(rdma.WorkFlushed)
	}
}

// flushSends flushes the send queue.
func (q *QueuePair) flushSends() {
	q.touch()
	for tail := q.sq.tail.Load(); q.head != tail; {
		q.retire(rdma.WorkFlushed)
	}
	q.reading = 0
	q.una, q.sent, q.psn = q.assigned, q.assigned, q.assigned
}

// finishReceive completes the current receive with an error.
func (q *QueuePair) finishReceive(s rdma.Status) {
	if s == rdma.WorkFlushed {
		q.engine.count(Flushed)
	}
	q.receive.taken = false
	q.complete(q.config.ReceiveCQ, &rdma.WorkCompletion{ID: q.receive.id, Status: s}, true)
}

// sendFailed puts a queue pair whose send failed into Error, or for UC and UD into SendError, in
// which receiving continues.
func (q *QueuePair) sendFailed() {
	if q.config.Transport == rdma.RC {
		q.fail()
		return
	}
	q.state.Store(uint32(rdma.SendError))
	q.flushSends()
}

// rung does the work that the program has requested since the last call: it sends or flushes
// requests and takes back frames.
func (q *QueuePair) rung() {
	e := q.engine
	if q.loans != nil {
		e.freed = q.loans.collect(e.freed)
	}
	switch q.State() {
	case rdma.Error:
		q.flush()
	case rdma.SendError:
		q.flushSends()
	case rdma.ReadyToSend, rdma.SendDrained:
		e.lists[sending].add(q)
	}
}
