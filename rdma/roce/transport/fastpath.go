package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// Most messages are one RC packet that arrives in order and without errors. The fast path does for
// them what PostSend, Progress and Receive would do. It leaves everything else to those.

// FastReceive is a message in one packet that is being received: Match returns it, Place places its
// payload, and Finish ends it. Between Place and Finish only a FastSend may use the engine; a build
// with -tags invariants panics otherwise. The zero value stands for no message.
type FastReceive struct {
	q *QueuePair
	h *wire.Only
}

// Match returns the message if it is the one that its queue pair expects next: one packet of length
// bytes from an IP address. ok is false if there is no such queue pair, or if the fast path cannot
// receive the message. h must stay unchanged until Finish.
func (e *Engine) Match(h *wire.Only, from *rdma.GID, length int) (p FastReceive, ok bool) {
	q := e.find(h.DestQPN)
	if q == nil || q.config.Transport != rdma.RC || !q.alive || h.PSN != q.expected || q.message.kind != wire.NoKind || length > int(q.mtu) {
		return p, false
	}
	s := q.State()
	if s < rdma.ReadyToReceive || s == rdma.Error || *from != q.attrs.Address.GID || !h.Write && q.loans != nil {
		return p, false
	}
	return FastReceive{q, h}, true
}

// Place places the payload of a packet whose ICRC is right, and makes the message visible to the
// program that polls. If it returns false, nothing has changed and the caller must pass the packet
// to Engine.Receive.
func (p FastReceive) Place(payload []byte) bool {
	placed := false
	if p.h.Write {
		placed = p.q.fastWrite(p.h, payload)
	} else {
		placed = p.q.fastSend(p.h, payload)
	}
	if umem.Invariants && placed {
		p.q.engine.fastOpen = true
	}
	return placed
}

// IsOpen reports whether p is a message, and not the zero value.
func (p FastReceive) IsOpen() bool { return p.q != nil }

// Finish ends what Place began. Publish, Progress or Receive, one of which must follow, wakes a
// program that sleeps until the message arrives.
func (p FastReceive) Finish() {
	q, h := p.q, p.h
	if umem.Invariants {
		q.engine.fastOpen = false
	}
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

// notFast panics in a build with -tags invariants if a fast receive is open.
func (e *Engine) notFast() {
	if umem.Invariants && e.fastOpen {
		panic("transport: the engine is used between Place and Finish of a FastReceive")
	}
}

// fastWrite places a WRITE.
func (q *QueuePair) fastWrite(h *wire.Only, payload []byte) bool {
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

// fastSend places a SEND in a receive and completes the receive.
func (q *QueuePair) fastSend(h *wire.Only, payload []byte) bool {
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

// fill places a message in a receive and returns the receive's ID. Most receives have one element, which
// need not be copied out of its queue.
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

// fastFlags are the flags of requests on the fast path.
const fastFlags = rdma.Signaled | rdma.Solicited | rdma.Inline

// FastSend is a message in one packet that is being posted: TrySend returns it, the caller sends
// its packet, and Finish ends it. Nothing else may use the queue pair in between.
type FastSend struct {
	Header  wire.Only
	Payload []byte // in the region, not copied

	q    *QueuePair
	r    *rdma.SendRequest
	sges []rdma.SGE
}

// TrySend begins to post a request whose elements are the first of sges. ok is false if the request
// is not a message in one packet of at most most bytes, if other packets must be sent before it, or
// if it cannot be posted; the caller then uses PostSend. Only the thread that posts calls it, and
// only while that thread has the engine.
func (q *QueuePair) TrySend(r *rdma.SendRequest, sges []rdma.SGE, most uint32) (p FastSend, ok bool) {
	if r.SGEs != 1 || len(sges) == 0 || r.Op != rdma.Send && r.Op != rdma.Write || r.Flags&^fastFlags != 0 || !q.sendsNext() {
		return p, false
	}
	s := &sges[0]
	if p.Payload, ok = q.readable(r, s); !ok || s.Length > min(most, q.mtu) {
		return p, false
	}
	p.Header = wire.Only{Write: r.Op == rdma.Write, Solicited: r.Flags&rdma.Solicited != 0, AckReq: true, Pad: wire.Pad(int(s.Length)),
		DestQPN: q.attrs.RemoteQPN, PSN: q.psn, VA: r.RemoteAddr, RKey: r.RKey, DMALength: s.Length}
	p.q, p.r, p.sges = q, r, sges[:1]
	return p, true
}

// sendsNext reports whether a request posted now may be sent at once, and there is room for it.
func (q *QueuePair) sendsNext() bool {
	if q.State() != rdma.ReadyToSend || q.config.Transport != rdma.RC || q.rnrWait || q.rate.limited {
		return false
	}
	if next := q.sq.next; q.cursor != next || q.nextWQE != next || q.psn.Distance(q.una) >= q.engine.config.Window {
		return false
	}
	_, ok := q.sq.reserve()
	return ok
}

// readable returns the memory of an element if a request may read it.
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

// Finish ends what TrySend began, after the caller has sent the packet. It records the request, which
// then waits for its ACK, and counts the packet.
func (p *FastSend) Finish() {
	q, r, payload := p.q, p.r, p.Payload
	e, at := q.engine, q.sq.next
	if r.Flags&rdma.Inline != 0 {
		copy(q.sq.slotInline(at&q.sq.mask), payload)
		e.counts.add(CopiedBytes, uint64(len(payload)))
	}
	q.sq.put(r, p.sges)
	q.sq.publish()
	*q.sq.work(at) = work{stage: started, first: q.psn, last: q.psn, length: uint32(len(payload))}
	q.psn = q.psn.Add(1)
	q.sent, q.assigned, q.sinceAckReq = q.psn, q.psn, 0
	q.cursor, q.nextWQE = at+1, at+1
	e.given++
	e.count(PacketsSent)
	if q.timer.deadline == never {
		e.lists[waiting].add(q)
	}
}
