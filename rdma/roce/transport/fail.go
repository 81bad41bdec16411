package transport

import "github.com/unifiedd/unifiedd/rdma"

// fail puts the queue pair into Error: everything that is posted is flushed. A NAK that says why, and the answers in
// front of it, still go out.
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

// flush completes what is posted with WorkFlushed, the sends and then the receives.
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

// finishReceive completes the receive that was taken with something that is no success.
func (q *QueuePair) finishReceive(s rdma.Status) {
	if s == rdma.WorkFlushed {
		q.engine.count(Flushed)
	}
	q.receive.taken = false
	q.complete(q.config.ReceiveCQ, &rdma.WorkCompletion{ID: q.receive.id, Status: s}, true)
}

// sendFailed puts a queue pair whose send failed into Error, or for UC and UD into SendError: its receives
// go on.
func (q *QueuePair) sendFailed() {
	if q.config.Transport == rdma.RC {
		q.fail()
		return
	}
	q.state.Store(uint32(rdma.SendError))
	q.flushSends()
}

// rung does what was asked for since: requests to be sent or flushed, frames to be taken back.
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
