package transport

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// keyIn is the rkey in the immediate of a request that invalidates one.
func keyIn(b [4]byte) uint32 { return binary.NativeEndian.Uint32(b[:]) }

// sendOne writes the next packet of the request at cursor, and says whether it could.
func (q *QueuePair) sendOne(p *Packet) bool {
	r, w := q.sq.request(q.cursor), q.sq.work(q.cursor)
	q.header(p)
	s := rdma.Success
	switch {
	case r.Op == rdma.Read:
		q.putRead(p, r, w)
	case isAtomic(r.Op):
		q.putAtomic(p, r)
	default:
		s = q.putMessage(p, r, w)
	}
	if s != rdma.Success {
		q.stop(w, s)
		q.reap()
		return false
	}
	q.advance(p, w)
	return true
}

// header writes what all packets of the queue pair to its peer have.
func (q *QueuePair) header(p *Packet) {
	p.Header = wire.Header{PKey: wire.DefaultPKey, MigReq: true, DestQPN: q.attrs.RemoteQPN}
	p.Peer, p.QPN = q.peer, q.qpn
	p.Length, p.Count, p.Inline, p.Again = 0, 0, nil, false
}

// advance counts the packet as sent, and goes on to the next.
func (q *QueuePair) advance(p *Packet, w *work) {
	h := &p.Header
	h.PSN = q.psn
	next := q.psn.Add(1)
	last := q.psn == w.last
	if h.Opcode == wire.RCReadRequest {
		next, last = w.last.Add(1), true
	}
	if q.config.Transport == rdma.RC {
		h.AckReq = q.asks(last)
		if p.Again = q.psn.Before(q.sent); p.Again {
			q.engine.count(PacketsAgain)
		}
	}
	q.psn = next
	if q.psn.After(q.sent) {
		q.sent = q.psn
	}
	if last {
		q.leave(w)
	}
}

// asks says whether the packet is to ask for an acknowledgement.
func (q *QueuePair) asks(last bool) bool {
	if q.quiet++; !last && q.quiet < q.engine.config.AckEvery {
		return false
	}
	q.quiet = 0
	return true
}

// leave goes on to the next request: the last packet of one is on its way. Those of UC and UD complete
// when it has left.
func (q *QueuePair) leave(w *work) {
	q.cursor++
	if q.config.Transport == rdma.RC {
		return
	}
	w.ticket = q.engine.given + 1
	q.una = q.psn
	q.engine.lists[departing].add(q)
}

// putMessage writes a packet of a SEND or WRITE, or says why the request fails.
func (q *QueuePair) putMessage(p *Packet, r *rdma.SendRequest, w *work) rdma.Status {
	offset := uint64(q.psn.Distance(w.first)) * uint64(q.mtu)
	n := uint32(min(uint64(w.length)-offset, uint64(q.mtu)))
	first, last := offset == 0, offset+uint64(n) == uint64(w.length)
	h := &p.Header
	h.Opcode, _ = wire.RequestOpcode(q.config.Transport, r.Op, first, last)
	if h.Opcode.HasRETH() {
		h.VA, h.RKey, h.DMALength = r.RemoteAddr, r.RKey, w.length
	}
	if last {
		h.Immediate, h.Invalidate = r.Immediate, keyIn(r.Immediate)
		h.Solicited = r.Flags&rdma.Solicited != 0
	}
	h.Pad = wire.Pad(int(n))
	p.Length = n
	switch {
	case q.config.Transport == rdma.UD && !q.putDatagram(p, r):
		return rdma.LocalQPOperation
	case !q.gather(p, r, offset):
		return rdma.LocalProtection
	}
	return rdma.Success
}

// putDatagram writes where a datagram goes, and says whether its handle is still there. A Q_Key with the highest bit stands for the queue pair's own.
func (q *QueuePair) putDatagram(p *Packet, r *rdma.SendRequest) (ok bool) {
	h := &p.Header
	h.DestQPN, h.QKey, h.SourceQPN = r.RemoteQPN&mask24, r.RemoteQKey, q.qpn
	if int32(h.QKey) < 0 {
		h.QKey = q.attrs.QKey
	}
	p.Peer, ok = q.engine.handles.find(r.Handle, q.config.Domain)
	return ok
}

// gather finds the pieces of the packet's payload, which begins offset bytes into the message.
func (q *QueuePair) gather(p *Packet, r *rdma.SendRequest, offset uint64) bool {
	if r.Flags&rdma.Inline != 0 {
		p.Inline = q.sq.slotInline(q.cursor & q.sq.mask)[offset : offset+uint64(p.Length)]
		return true
	}
	left := uint64(p.Length)
	sges := q.sq.elements(q.cursor)
	for i := 0; left > 0; i++ {
		s := &sges[i]
		size := uint64(s.Length)
		if offset >= size {
			offset -= size
			continue
		}
		n := min(size-offset, left)
		if !q.engine.keys.local(s.LKey, q.config.Domain, s.Addr+offset, n, 0) {
			return false
		}
		p.Pieces[p.Count] = Piece{Addr: s.Addr + offset, Length: uint32(n)}
		p.Count++
		left -= n
		offset = 0
	}
	return true
}

// putRead writes the request for a READ, or for what is missing of one.
func (q *QueuePair) putRead(p *Packet, r *rdma.SendRequest, w *work) {
	have := uint64(w.got) * uint64(q.mtu)
	q.psn = w.first.Add(int(w.got))
	h := &p.Header
	h.Opcode, h.VA, h.RKey, h.DMALength = wire.RCReadRequest, r.RemoteAddr+have, r.RKey, w.length-uint32(have)
}

func (q *QueuePair) putAtomic(p *Packet, r *rdma.SendRequest) {
	h := &p.Header
	h.Opcode, _ = wire.RequestOpcode(rdma.RC, r.Op, true, true)
	h.VA, h.RKey = r.RemoteAddr, r.RKey
	if h.SwapAdd = r.Compare; r.Op == rdma.CompareSwap {
		h.SwapAdd, h.Compare = r.Swap, r.Compare
	}
}
