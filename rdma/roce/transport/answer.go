package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// sendAnswers has the queue pairs that have acknowledgements and answers to give give them in turns.
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

// answer writes packets to out until it is full or everything is said, in the order of the requests: the answers to READs
// and atomics, then what is to be said of what is expected.
func (q *QueuePair) answer(out []Packet) (n int) {
	if q.congests && n < len(out) {
		q.putCNP(&out[n])
		n++
	}
	for n < len(out) {
		p := q.replies.front()
		switch {
		case p != nil:
			if q.putReply(&out[n], p) {
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

// putReply writes the next packet of an answer, and says whether it could: the right to read may have ended.
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
		if p.last.Add(1) == q.expected { // which this answer says
			q.ack, q.held = false, 0
		}
	}
	p.next = p.next.Add(1)
	return true
}

// putReadData points the packet at the part of the memory that it carries.
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

// putNAK writes an acknowledgement of any kind, if one is due.
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
	q.held = 0
	q.header(to)
	h := &to.Header
	h.Opcode, h.PSN, h.Syndrome, h.MSN = wire.RCAcknowledge, at, syndrome, q.msn
	return true
}
