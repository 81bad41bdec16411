package transport

import "github.com/unifiedd/unifiedd/rdma"

var doneKinds = [...]rdma.Kind{rdma.Write: rdma.WriteDone, rdma.WriteImmediate: rdma.WriteDone, rdma.Send: rdma.SendDone, rdma.SendImmediate: rdma.SendDone,
	rdma.Read: rdma.ReadDone, rdma.CompareSwap: rdma.CompareSwapDone, rdma.FetchAdd: rdma.FetchAddDone, rdma.LocalInvalidate: rdma.LocalInvalidateDone,
	opBind: rdma.BindDone, rdma.SendInvalidate: rdma.SendDone}

// retire completes the oldest request. A success is a completion where it was asked for.
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
	if int32(q.fresh-q.head) < 0 {
		q.fresh = q.head
	}
	q.touch()
	if wanted {
		q.complete(q.config.SendCQ, &c, false)
	}
}

// reap completes, from the oldest on, requests without packets, and the one that failed here.
func (q *QueuePair) reap() {
	for q.head != q.fresh {
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
	if q.State() != rdma.Error { // which a full completion queue has done already
		q.sendFailed()
	}
}

// depart completes requests of UC and UD whose packets have left, and says whether some have not.
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
