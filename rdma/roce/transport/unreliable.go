package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// unreliable takes a packet of UC. A message of which one is missing, or that is refused, is lost without a word; the next
// one begins where it begins. IBTA specification, volume 1, 9.8.
func (q *QueuePair) unreliable(a *Arrival) {
	h, m := &a.Header, &q.message
	if h.Opcode.Starts() {
		q.lose()
	} else if m.kind == wire.NoKind || h.PSN != q.expected {
		q.lose()
		q.engine.drop(BadPSN)
		return
	}
	q.expected = h.PSN
	v := q.execute(a)
	switch v {
	case accepted:
		return
	case faulty:
		q.engine.drop(LocalFault)
		q.breakDown(rdma.LocalProtection, rdma.QueuePairFatal)
		return
	}
	q.engine.drop(consequences[v].drop)
	q.lose()
}

// lose drops the message that is coming in. The receive that was taken for it stays for the next.
func (q *QueuePair) lose() { q.responder.abandon(q) }
