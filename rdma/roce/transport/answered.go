package transport

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// answered takes data of the oldest request, a READ or an atomic.
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
		q.missed(now)
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

// takeAnswer places the data. Whether a packet is called first, middle or last is not looked at: peers differ in that
// where a READ goes on in its middle.
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
