package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// Most messages are one packet of RC, with nothing in front of it, and nothing is wrong. For those there is a shorter way through the
// protocol, which does what PostSend, Send and Receive would, and leaves to them whatever is not so simple.

// Expects is the queue pair for which a message in one packet, of length bytes from an IP address, is what comes next, nil where
// there is none or it cannot be had by ReceiveOnly.
func (e *Engine) Expects(h *wire.Only, from *rdma.GID, length int) *QueuePair {
	q := e.find(h.DestQPN)
	if q == nil || q.config.Transport != rdma.RC || !q.alive || h.PSN != q.expected || q.message.kind != wire.NoKind || length > int(q.mtu) {
		return nil
	}
	s := q.State()
	if s < rdma.ReadyToReceive || s == rdma.Error || *from != q.attrs.Address.GID || !h.Write && q.loans != nil {
		return nil
	}
	return q
}

// ReceiveOnly is Engine.Receive of a packet that Expects has named the queue pair of, with the right ICRC. It is not ok where that is not
// simple: then nothing has changed, and Receive is to have the packet. What it brings is shown to the program that polls at once. It is ended
// by ReceivedOnly, and nothing but SendOnly and SentOnly may come between.
func (q *QueuePair) ReceiveOnly(h *wire.Only, payload []byte) (ok bool) {
	if h.Write {
		return q.writeOnly(h, payload)
	}
	return q.sendOnly(h, payload)
}

// ReceivedOnly ends what ReceiveOnly began. Who sleeps until the message comes is found by Publish, Send or Receive, one of which
// follows.
func (q *QueuePair) ReceivedOnly(h *wire.Only) {
	q.expected, q.nakked, q.msn = h.PSN.Add(1), false, (q.msn+1)&mask24
	if !h.Write {
		q.rq.publish()
		q.engine.list(q.config.ReceiveCQ)
	}
	if h.AckReq {
		q.scheduleACK()
	}
	q.engine.count(PacketsReceived)
}

// writeOnly places a WRITE.
func (q *QueuePair) writeOnly(h *wire.Only, payload []byte) bool {
	n := uint64(len(payload))
	if q.attrs.Access&rdma.RemoteWrite == 0 || uint64(h.DMALength) != n {
		return false
	}
	if n > 0 {
		if !q.engine.keys.remote(h.RKey, q.config.Domain, q.qpn, h.VA, n, rdma.RemoteWrite) {
			return false
		}
		q.engine.put(h.VA, payload)
	}
	return true
}

// sendOnly places a SEND in a receive, and completes that.
func (q *QueuePair) sendOnly(h *wire.Only, payload []byte) bool {
	cq := q.config.ReceiveCQ
	if !cq.room(1) {
		return false
	}
	id, ok := q.fill(payload)
	if ok {
		cq.put(&rdma.WorkCompletion{ID: id, Kind: rdma.Received, Length: uint32(len(payload)), QPN: q.qpn}, h.Solicited)
		cq.show()
	}
	return ok
}

// fill places a message in a receive and returns the receive's ID. Most have one element, which need not be taken out of its queue for that.
func (q *QueuePair) fill(payload []byte) (id uint64, ok bool) {
	e, r, n := q.engine, &q.receive, uint64(len(payload))
	if !r.taken {
		switch s, id := q.rq.single(); {
		case s == nil:
		case n > uint64(s.Length) || n > 0 && !e.keys.local(s.LKey, q.config.Domain, s.Addr, n, rdma.LocalWrite):
			return 0, false
		default:
			if n > 0 {
				e.put(s.Addr, payload)
			}
			q.rq.first++
			return id, true
		}
		if !q.takeReceive() {
			return 0, false
		}
	}
	if n > r.room || !e.scatterBytes(q.config.Domain, r.sges[:r.count], 0, payload) {
		return 0, false
	}
	r.taken = false
	return r.id, true
}

// plain are the flags of requests that SendOnly knows.
const plain = rdma.Signaled | rdma.Solicited | rdma.Inline

// SendOnly begins to post a request whose elements are the first of sges, and gives the headers and the payload of its packet. The
// packet is sent, and then SentOnly called, before anything else. It is not ok where the request is no message in one packet
// of at most that many bytes, or other packets go in front, or the request cannot be posted: PostSend is for that.
// It is called by the thread that posts while that is the engine's.
func (q *QueuePair) SendOnly(r *rdma.SendRequest, sges []rdma.SGE, most uint32) (h wire.Only, payload []byte, ok bool) {
	if r.SGEs != 1 || len(sges) == 0 || r.Op != rdma.Send && r.Op != rdma.Write || r.Flags&^plain != 0 || !q.sendsNext() {
		return h, nil, false
	}
	s := &sges[0]
	if payload, ok = q.readable(r, s); !ok || s.Length > min(most, q.mtu) {
		return h, nil, false
	}
	h = wire.Only{Write: r.Op == rdma.Write, Solicited: r.Flags&rdma.Solicited != 0, AckReq: true, Pad: wire.Pad(int(s.Length)),
		DestQPN: q.attrs.RemoteQPN, PSN: q.psn, VA: r.RemoteAddr, RKey: r.RKey, DMALength: s.Length}
	return h, payload, true
}

// sendsNext says whether what is posted now may be sent at once, and there is room for it.
func (q *QueuePair) sendsNext() bool {
	if q.State() != rdma.ReadyToSend || q.config.Transport != rdma.RC || q.resting {
		return false
	}
	if next := q.sq.next; q.cursor != next || q.fresh != next || q.psn.Distance(q.una) >= q.engine.config.Window {
		return false
	}
	_, ok := q.sq.reserve()
	return ok
}

// readable is the memory of an element, where a request may read it.
func (q *QueuePair) readable(r *rdma.SendRequest, s *rdma.SGE) (payload []byte, ok bool) {
	data, n := q.engine.data, uint64(s.Length)
	switch {
	case r.Flags&rdma.Inline != 0:
		if s.Length > q.sq.perBytes || s.Addr > uint64(len(data)) || n > uint64(len(data))-s.Addr {
			return nil, false
		}
	case n > 0 && !q.engine.keys.local(s.LKey, q.config.Domain, s.Addr, n, 0):
		return nil, false
	}
	if n == 0 {
		return nil, true
	}
	return data[s.Addr : s.Addr+n], true
}

// SentOnly ends what SendOnly began: its packet is on its way.
func (q *QueuePair) SentOnly(r *rdma.SendRequest, sges []rdma.SGE, payload []byte) {
	e, at := q.engine, q.sq.next
	if r.Flags&rdma.Inline != 0 {
		copy(q.sq.slotInline(at&q.sq.mask), payload)
		e.counts.add(CopiedBytes, uint64(len(payload)))
	}
	q.sq.put(r, sges[:1])
	q.sq.publish()
	*q.sq.work(at) = work{stage: started, first: q.psn, last: q.psn, length: uint32(len(payload))}
	q.psn = q.psn.Add(1)
	q.sent, q.assigned, q.quiet = q.psn, q.psn, 0
	q.cursor, q.fresh = at+1, at+1
	e.given++
	e.count(PacketsSent)
	if q.timer.deadline == never {
		e.lists[waiting].add(q)
	}
}
