package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// respond takes a packet that answers requests of ours: an acknowledgement, or the data of a READ or
// atomic.
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
	case !h.PSN.Before(q.sent): // of what was never sent: a ghost
		e.drop(BadPSN)
		return
	}
	if w := q.settle(h.PSN); w != nil {
		q.respondTo(now, a, w)
	}
	q.reap()
	q.checkDrained()
	if q.State() != rdma.Error && (q.cursor != q.fresh || q.fresh != q.sq.tail.Load()) {
		e.lists[sending].add(q)
	}
}

// respondTo takes a response when w is the oldest request: the one that it is of, or one whose answer was lost.
func (q *QueuePair) respondTo(now Time, a *Arrival, w *work) {
	before, h := q.una, &a.Header
	isRead := w.stage == started && reads(q.sq.request(q.head).Op)
	ack := h.Opcode.Kind() == wire.Acknowledge
	switch {
	case isRead && (w.last.Before(h.PSN) || ack && h.Syndrome.IsACK()):
		q.una = w.first.Add(int(w.got))
		q.progress(now, before)
		q.missed(now)
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

// settle completes what a response to packet p says has arrived: the SENDs and WRITEs in front of it. It returns
// the request that p is of; or before that a READ or atomic, whose answer was lost; nil when the queue pair failed.
func (q *QueuePair) settle(p wire.PSN) *work {
	for q.head != q.fresh {
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

// progress gives retries back and puts the deadline off, where something new was acknowledged.
func (q *QueuePair) progress(now Time, before wire.PSN) {
	if q.una == before {
		return
	}
	if q.psn.Before(q.una) {
		q.psn = q.una
	}
	q.reload()
	switch {
	case q.resting:
	case q.una == q.sent:
		q.engine.timers.clear(q)
	default:
		q.await(now)
	}
}

// acknowledged takes an ACK of packet p of the oldest request, a SEND or WRITE.
func (q *QueuePair) acknowledged(now Time, p wire.PSN, w *work) {
	before := q.una
	q.una = p.Add(1)
	if p == w.last && w.stage == started {
		q.retire(rdma.Success)
	}
	q.progress(now, before)
}

// denied takes a NAK of packet p: those in front of it are acknowledged by it.
func (q *QueuePair) denied(now Time, s wire.Syndrome, p wire.PSN) {
	before := q.una
	q.una = p
	q.progress(now, before)
	switch {
	case s.IsRNR():
		q.engine.count(RNRReceived)
		q.rest(now, s)
	case s == wire.NAKSequence:
		q.engine.count(SequenceNAKs)
		if !q.resting && q.psn != q.una { // else it is about to be sent again
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

// rest has the queue pair wait until the receiver may be ready.
func (q *QueuePair) rest(now Time, s wire.Syndrome) {
	if q.resting || q.psn == q.una { // refused before, and not sent again since
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
	q.resting = true
	q.goBack()
	q.engine.timers.set(q, now.After(wire.RNRDelay(s.Value())))
}

// missed asks again for an answer that was lost: one behind it came. Once is enough until something new comes.
func (q *QueuePair) missed(now Time) {
	if q.recovering || q.resting {
		return
	}
	q.engine.count(ImpliedNAKs)
	q.recovering = true
	q.retry(now)
}

// retry has everything that is not acknowledged sent again, unless it was often enough.
func (q *QueuePair) retry(now Time) {
	e := q.engine
	if q.retries == 0 {
		e.count(RetriesExceeded)
		q.failHead(rdma.RetryExceeded)
		return
	}
	q.retries--
	e.count(Retries)
	q.goBack()
	q.await(now)
	e.lists[sending].add(q)
}

// goBack goes on with the oldest packet that is not acknowledged.
func (q *QueuePair) goBack() { q.cursor, q.psn, q.quiet = q.head, q.una, 0 }

// expire is called when the deadline has come.
func (q *QueuePair) expire(now Time) {
	if q.resting {
		q.resting = false
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
