package transport

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// requester is the state of a queue pair's own requests. Indices are those of the send queue:
//
//	head <= cursor <= nextWQE <= tail
//
// Requests from head to nextWQE have begun. Those from cursor on have packets to send, for the first time or again.
// For the packet numbers of RC:
//
//	una <= psn <= assigned, and una <= sent <= assigned
type requester struct {
	head     uint32   // the oldest request not completed
	cursor   uint32   // the request whose packets are next
	nextWQE  uint32   // the first request not begun
	una      wire.PSN // the first packet not acknowledged
	psn      wire.PSN // of the next packet to be sent
	sent     wire.PSN // one past the last packet ever sent
	assigned wire.PSN // one past the last packet of the requests begun
	drainAt  uint32   // in SendDrained: the first request that waits

	reading     int   // READs and atomics that have begun and are not answered
	sinceAckReq int   // packets since one asked for an ACK
	retries     uint8 // left
	rnrRetries  uint8
	doublings   uint8 // of the timeout for an ACK
	rnrWait     bool  // the RNR NAK timer runs: 9.7.5.2.8
	recovering  bool  // a lost answer was requested again, and nothing new has arrived since
	drained     bool  // in SendDrained: the event was given
}

// begin prepares the queue pair to send.
func (q *QueuePair) begin(psn wire.PSN) {
	q.una, q.psn, q.sent, q.assigned = psn, psn, psn, psn
	q.reload()
}

// reload restores all retries after progress.
func (q *QueuePair) reload() {
	q.retries, q.rnrRetries = q.attrs.Retries, q.attrs.RNRRetries
	q.doublings, q.recovering = 0, false
}

// drain makes requests wait that are posted from now on.
func (q *QueuePair) drain() {
	q.drainAt, q.drained = q.sq.tail.Load(), false
}

// sendRequests lets the queue pairs with requests send, in turn.
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

// send writes packets of requests to out until it is full or no packet can be sent now.
func (q *QueuePair) send(out []Packet) (n int) {
	for n < len(out) && q.next() {
		if q.rate.limited && !q.mayLeave() {
			break
		}
		if q.sendOne(&out[n]) {
			if q.rate.limited {
				q.left(&out[n])
			}
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

// next finds the next request with a packet to send, and reports whether there is one.
func (q *QueuePair) next() bool {
	for !q.rnrWait {
		if q.cursor == q.nextWQE {
			if !q.mayBegin() || !q.beginNext() {
				return false
			}
			continue // it may have been completed at once
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

// mayBegin reports whether there is another request to begin and the state allows it.
func (q *QueuePair) mayBegin() bool {
	if q.nextWQE == q.sq.tail.Load() {
		return false
	}
	switch q.State() {
	case rdma.ReadyToSend:
		return true
	case rdma.SendDrained:
		return q.nextWQE != q.drainAt
	}
	return false
}

// beginNext begins the next request, and reports whether it could.
func (q *QueuePair) beginNext() bool {
	r, w := q.sq.request(q.nextWQE), q.sq.work(q.nextWQE)
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

// reads reports whether the operation has an answer of its own.
func reads(op rdma.Op) bool { return op == rdma.Read || isAtomic(op) }

// doLocal records the result of a request without packets.
func (q *QueuePair) doLocal(w *work, ok bool, s rdma.Status) {
	if !ok {
		q.stop(w, s)
		return
	}
	w.stage = local
	q.nextWQE++
	q.reap()
}

// stop marks a request, the next or the one at cursor, as the one that fails the queue pair. It
// does so after those before it are completed.
func (q *QueuePair) stop(w *work, s rdma.Status) {
	w.stage, w.status = failed, s
	if q.cursor == q.nextWQE {
		q.nextWQE++
	}
}

// checkNext checks the memory of a request and computes its length.
func (q *QueuePair) checkNext(r *rdma.SendRequest, w *work) rdma.Status {
	length, need := uint64(0), rdma.Access(0)
	if reads(r.Op) {
		need = rdma.LocalWrite
		if q.attrs.MaxReads == 0 {
			return rdma.LocalQPOperation
		}
	}
	inline := r.Flags&rdma.Inline != 0
	sges := q.sq.elements(q.nextWQE)
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
	q.nextWQE++
	if reads(r.Op) {
		q.reading++
	}
	if r.Flags&rdma.Inline != 0 { // copied when it was posted
		q.engine.counts.add(CopiedBytes, uint64(w.length))
	}
}

// packets returns the number of packets of a message.
func packets(length, mtu uint32) int { return int(max(1, (uint64(length)+uint64(mtu)-1)/uint64(mtu))) }

// await sets the deadline for the next ACK: the timeout T, and after timeouts in a row 2T and then
// 4T, the longest that the specification allows. So a peer that is slower than T for a while does
// not get more and more duplicates. IBTA specification, volume 1, 9.7.6.1.3.
func (q *QueuePair) await(now Time) {
	if d := wire.AckTimeout(q.attrs.Timeout); d != 0 {
		q.engine.timers.set(q, now.After(d<<q.doublings))
	}
}

// maxDoublings makes 4T of T.
const maxDoublings = 2

// checkDrained raises one event when all requests posted before SendDrained are complete.
func (q *QueuePair) checkDrained() {
	if q.State() == rdma.SendDrained && !q.drained && q.head == q.drainAt {
		q.drained = true
		q.engine.event(rdma.SendQueueDrained, q.qpn)
	}
}

// keyIn returns the rkey in the immediate data of a request with invalidate.
func keyIn(b [4]byte) uint32 { return binary.NativeEndian.Uint32(b[:]) }

// sendOne writes the next packet of the request at cursor, and reports whether it could.
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

// header writes the fields that all packets to the peer have.
func (q *QueuePair) header(p *Packet) {
	p.Header = wire.Header{PKey: wire.DefaultPKey, MigReq: true, DestQPN: q.attrs.RemoteQPN}
	p.Peer, p.QPN = q.peer, q.qpn
	p.Length, p.Count, p.Inline, p.Again = 0, 0, nil, false
}

// advance counts the packet as sent and moves on to the next.
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

// asks reports whether the packet must ask for an ACK.
func (q *QueuePair) asks(last bool) bool {
	if q.sinceAckReq++; !last && q.sinceAckReq < q.engine.config.AckEvery {
		return false
	}
	q.sinceAckReq = 0
	return true
}

// leave moves on to the next request after the last packet of one. Requests of UC and UD complete
// when that packet has left.
func (q *QueuePair) leave(w *work) {
	q.cursor++
	if q.config.Transport == rdma.RC {
		return
	}
	w.ticket = q.engine.given + 1
	q.una = q.psn
	q.engine.lists[departing].add(q)
}

// putMessage writes a packet of a SEND or WRITE, or returns why the request fails.
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

// putDatagram writes the destination of a datagram, and reports whether its handle still exists. A
// Q_Key with the highest bit set stands for the queue pair's own.
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

// putRead writes the request for a READ, or for the part of it that is missing.
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

// Reasons for refusing requests. They are allocated once; sendError adds the details.
var (
	errShortList = fmt.Errorf("it has more elements than are left of the list: %w", unix.EINVAL)
	errState     = fmt.Errorf("%w: sends can be posted from RTS on", rdma.ErrState)
	errReset     = fmt.Errorf("%w: receives can be posted from INIT on", rdma.ErrState)
	errOperation = fmt.Errorf("%w by the transport", rdma.ErrUnsupported)
	errElements  = fmt.Errorf("more elements than the queue pair takes: %w", unix.EINVAL)
	errInline    = fmt.Errorf("more bytes inline than the queue pair takes, or an operation that reads: %w", unix.EINVAL)
	errMemory    = fmt.Errorf("inline data must lie in the region: %w", unix.EFAULT)
	errHandle    = fmt.Errorf("its Handle is none of its protection domain's: %w", unix.EINVAL)
	errAtomic    = fmt.Errorf("an atomic has 8 bytes, at an address that is a multiple of 8: %w", unix.EINVAL)
	errShared    = errors.New("it has a shared receive queue: post to that")
	errLoans     = errors.New("its messages are handed on in the frames they arrive in: it takes no receives")
)

// PostSend implements rdma.QueuePair.
func (q *QueuePair) PostSend(requests []rdma.SendRequest, sges []rdma.SGE) (n int, err error) {
	why := q.refuseState()
	for ; n < len(requests) && why == nil; n++ {
		r := &requests[n]
		if why = q.postOne(r, sges); why != nil {
			break
		}
		sges = sges[r.SGEs:]
	}
	if n > 0 {
		q.sq.publish()
		q.engine.ring(q.slot)
	}
	if why != nil {
		return n, q.sendError(requests, n, why)
	}
	return n, nil
}

func (q *QueuePair) sendError(requests []rdma.SendRequest, n int, why error) error {
	if len(requests) == 0 {
		return fmt.Errorf("post to %v: %w", q, why)
	}
	r := &requests[n]
	return fmt.Errorf("post send %d of %d (%v, %d elements) to %v: %w", n+1, len(requests), r.Op, r.SGEs, q, why)
}

func (q *QueuePair) refuseState() error {
	if !q.State().CanPostSend() {
		return errState
	}
	return nil
}

// postOne checks a request and adds it to the queue.
func (q *QueuePair) postOne(r *rdma.SendRequest, sges []rdma.SGE) error {
	switch {
	case !q.config.Transport.Allows(r.Op):
		return errOperation
	case uint64(r.SGEs) > uint64(len(sges)):
		return errShortList
	case r.SGEs > q.sq.perSlot:
		return errElements
	}
	own := sges[:r.SGEs]
	if q.config.Transport == rdma.UD {
		if _, ok := q.engine.handles.find(r.Handle, q.config.Domain); !ok {
			return errHandle
		}
	}
	if isAtomic(r.Op) && (r.RemoteAddr%8 != 0 || total(own) < 8) {
		return errAtomic
	}
	if r.Flags&rdma.Inline != 0 {
		return q.postInline(r, own)
	}
	if !q.sq.put(r, own) {
		return q.sq.full()
	}
	return nil
}

// postInline copies the bytes of a request into the queue.
func (q *QueuePair) postInline(r *rdma.SendRequest, sges []rdma.SGE) error {
	if total(sges) > uint64(q.sq.perBytes) || isAtomic(r.Op) || r.Op == rdma.Read {
		return errInline
	}
	slot, ok := q.sq.reserve()
	if !ok {
		return q.sq.full()
	}
	to, data := q.sq.slotInline(slot), q.engine.data
	for i := range sges {
		s, size := &sges[i], uint64(len(data))
		if s.Addr > size || uint64(s.Length) > size-s.Addr {
			return errMemory
		}
		to = to[copy(to, data[s.Addr:s.Addr+uint64(s.Length)]):]
	}
	q.sq.put(r, sges)
	return nil
}

func isAtomic(op rdma.Op) bool { return op == rdma.CompareSwap || op == rdma.FetchAdd }

// total returns the sum of the elements' lengths.
func total(sges []rdma.SGE) (n uint64) {
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}

// PostReceive implements rdma.QueuePair.
func (q *QueuePair) PostReceive(requests []rdma.ReceiveRequest, sges []rdma.SGE) (n int, err error) {
	why := q.refuseReceives()
	if why == nil {
		n, why = q.rq.post(requests, sges)
	}
	if n > 0 && q.State() == rdma.Error {
		q.engine.ring(q.slot)
	}
	if why != nil {
		return n, fmt.Errorf("post receive %d of %d to %v: %w", n+1, len(requests), q, why)
	}
	return n, nil
}

func (q *QueuePair) refuseReceives() error {
	switch {
	case q.config.Loans > 0:
		return errLoans
	case q.config.Shared != nil:
		return errShared
	case !q.State().CanPostReceive():
		return errReset
	}
	return nil
}
