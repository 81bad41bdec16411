package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// takeRead takes a request for a READ, which Progress answers.
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

// mayRead says whether the peer may read there. Of no bytes nothing is checked.
func (q *QueuePair) mayRead(rkey uint32, va uint64, n uint32) bool {
	return n == 0 || q.engine.keys.remote(rkey, q.config.Domain, q.qpn, va, uint64(n), rdma.RemoteRead)
}

// keep counts a READ or atomic as a message, and has it answered.
func (q *QueuePair) keep(p reply) {
	q.msn = (q.msn + 1) & mask24
	p.msn = q.msn
	q.expected = p.last.Add(1)
	q.replies.add(p)
	q.engine.lists[answering].add(q)
}

// takeAtomic executes an atomic. What was there before is kept, and said again when the request comes again.
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
