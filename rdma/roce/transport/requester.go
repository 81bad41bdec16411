package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// requester is what a queue pair knows of its own requests. Indices are those of the send queue:
//
//	head <= cursor <= fresh <= tail
//
// Requests from head to fresh have begun, and those from cursor on have packets to be sent, at first or again.
// Packet numbers of RC lie likewise:
//
//	una <= psn <= assigned, and una <= sent <= assigned
type requester struct {
	head     uint32   // the oldest request not completed
	cursor   uint32   // the request whose packets are next
	fresh    uint32   // the first request not begun
	una      wire.PSN // the first packet not acknowledged
	psn      wire.PSN // of the next packet to be sent
	sent     wire.PSN // one past the last packet ever sent
	assigned wire.PSN // one past the last packet of the requests begun
	drainAt  uint32   // in SendDrained: the first request that waits

	reading    int   // READs and atomics begun and not answered
	quiet      int   // packets since one asked for an acknowledgement
	retries    uint8 // that are left
	rnrRetries uint8
	doublings  uint8 // of the time that an acknowledgement is waited for
	resting    bool  // until the deadline, since the receiver was not ready
	recovering bool  // what is lost was asked for again, and nothing new came since
	drained    bool  // in SendDrained: the program was told
}

// begin readies the queue pair to send.
func (q *QueuePair) begin(psn wire.PSN) {
	q.una, q.psn, q.sent, q.assigned = psn, psn, psn, psn
	q.reload()
}

// reload gives all retries back: there was progress.
func (q *QueuePair) reload() {
	q.retries, q.rnrRetries = q.attrs.Retries, q.attrs.RNRRetries
	q.doublings, q.recovering = 0, false
}

// drain has requests that are posted from now on wait.
func (q *QueuePair) drain() {
	q.drainAt, q.drained = q.sq.tail.Load(), false
}

// sendRequests has the queue pairs that have requests send in turns.
func (e *Engine) sendRequests(out []Packet) (n int) {
	l := &e.lists[sending]
	for l.n > 0 && n < len(out) {
		q := l.next()
		room := out[n:min(len(out), n+e.config.Burst)]
		sent := q.send(room)
		if n += sent; sent == len(room) {
			l.add(q)
		}
	}
	return n
}

// send writes packets of the queue pair's requests to out until it is full, or there are no more for now.
func (q *QueuePair) send(out []Packet) (n int) {
	for n < len(out) && q.next() {
		if q.sendOne(&out[n]) {
			n++
			q.engine.given++
		}
	}
	if n > 0 && q.timer.deadline == never {
		q.engine.lists[waiting].add(q)
	}
	q.checkDrained()
	return n
}

// next finds the next request that has a packet to be sent, and says whether there is one now.
func (q *QueuePair) next() bool {
	for !q.resting {
		if q.cursor == q.fresh {
			if !q.mayBegin() || !q.beginNext() {
				return false
			}
			continue // unless it was completed at once
		}
		switch q.sq.work(q.cursor).stage {
		case started:
			return q.config.Transport != rdma.RC || q.psn.Distance(q.una) < q.engine.config.Window
		case failed:
			q.reap()
			return false
		}
		q.cursor++
	}
	return false
}

// mayBegin says whether there is another request to begin, and the state allows it.
func (q *QueuePair) mayBegin() bool {
	if q.fresh == q.sq.tail.Load() {
		return false
	}
	switch q.State() {
	case rdma.ReadyToSend:
		return true
	case rdma.SendDrained:
		return q.fresh != q.drainAt
	}
	return false
}

// beginNext begins the next request, and says whether it could.
func (q *QueuePair) beginNext() bool {
	r, w := q.sq.request(q.fresh), q.sq.work(q.fresh)
	if r.Flags&rdma.Fence != 0 && q.reading > 0 {
		return false
	}
	*w = work{}
	switch {
	case r.Op == opBind:
		q.doLocal(w, q.engine.keys.bind(q.config.Domain, q.qpn, bindingOf(r)), rdma.WindowBind)
		return true
	case r.Op == rdma.LocalInvalidate:
		q.doLocal(w, q.engine.keys.invalidate(keyIn(r.Immediate), q.config.Domain, q.qpn), rdma.LocalQPOperation)
		return true
	}
	if reads(r.Op) {
		if limit := int(q.attrs.MaxReads); q.reading >= limit && limit > 0 {
			return false
		}
	}
	if s := q.checkNext(r, w); s != rdma.Success {
		q.stop(w, s)
		return true
	}
	q.number(r, w)
	return true
}

// reads says whether the operation has an answer of its own.
func reads(op rdma.Op) bool { return op == rdma.Read || isAtomic(op) }

// doLocal notes how a request ended that has no packets.
func (q *QueuePair) doLocal(w *work, ok bool, s rdma.Status) {
	if !ok {
		q.stop(w, s)
		return
	}
	w.stage = local
	q.fresh++
	q.reap()
}

// stop marks a request, the next or that at cursor, as the one that the queue pair fails by, once those in front of it
// are completed.
func (q *QueuePair) stop(w *work, s rdma.Status) {
	w.stage, w.status = failed, s
	if q.cursor == q.fresh {
		q.fresh++
	}
}

// checkNext checks the memory of a request, and measures it.
func (q *QueuePair) checkNext(r *rdma.SendRequest, w *work) rdma.Status {
	length, need := uint64(0), rdma.Access(0)
	if reads(r.Op) {
		need = rdma.LocalWrite
		if q.attrs.MaxReads == 0 {
			return rdma.LocalQPOperation
		}
	}
	inline := r.Flags&rdma.Inline != 0
	sges := q.sq.elements(q.fresh)
	for i := range sges {
		s := &sges[i]
		if s.Length != 0 && !inline && !q.engine.keys.local(s.LKey, q.config.Domain, s.Addr, uint64(s.Length), need) {
			return rdma.LocalProtection
		}
		length += uint64(s.Length)
	}
	if isAtomic(r.Op) {
		length = 8
	}
	if length > MaxMessage || q.config.Transport == rdma.UD && length > uint64(q.mtu) {
		return rdma.LocalLength
	}
	w.length = uint32(length)
	return rdma.Success
}

// number gives the request its packet numbers.
func (q *QueuePair) number(r *rdma.SendRequest, w *work) {
	w.stage, w.first = started, q.assigned
	w.last = w.first.Add(packets(w.length, q.mtu) - 1)
	q.assigned = w.last.Add(1)
	q.fresh++
	if reads(r.Op) {
		q.reading++
	}
	if r.Flags&rdma.Inline != 0 { // when it was posted
		q.engine.counts.add(CopiedBytes, uint64(w.length))
	}
}

// packets is how many a message takes.
func packets(length, mtu uint32) int { return int(max(1, (uint64(length)+uint64(mtu)-1)/uint64(mtu))) }

// await sets the deadline of the next acknowledgement: the timeout T; after timeouts in a row 2T, and then 4T, which is the longest
// that it may take. A peer that is slower than T for a while is not buried in duplicates. IBTA specification, volume 1, 9.7.6.1.3.
func (q *QueuePair) await(now Time) {
	if d := wire.AckTimeout(q.attrs.Timeout); d != 0 {
		q.engine.timers.set(q, now.After(d<<q.doublings))
	}
}

// maxDoublings makes 4T of T.
const maxDoublings = 2

// checkDrained tells the program once that all that was posted before SendDrained is done.
func (q *QueuePair) checkDrained() {
	if q.State() == rdma.SendDrained && !q.drained && q.head == q.drainAt {
		q.drained = true
		q.engine.event(rdma.SendQueueDrained, q.qpn)
	}
}
