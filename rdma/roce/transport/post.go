package transport

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// Why requests are refused. They are made beforehand; what the caller gets says more.
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

// PostSend is that of rdma.QueuePair.
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

// postOne checks a request and puts it in.
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

// postInline copies the bytes of a request beside it.
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

// total is the length of elements together.
func total(sges []rdma.SGE) (n uint64) {
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}

// PostReceive is that of rdma.QueuePair.
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
