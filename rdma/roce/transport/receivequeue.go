package transport

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// ReceiveQueue holds the receives of a queue pair, or of several of one engine that share it. One
// thread of the program posts to it, the engine takes from it.
type ReceiveQueue struct {
	requests []rdma.ReceiveRequest // written by the program
	sges     []rdma.SGE            // the program's, perSlot for each request
	mask     uint32
	perSlot  uint32
	shared   bool
	limit    atomic.Int64 // an event is due when fewer receives are left; 0: none
	_        line
	tail     atomic.Uint32 // written by the program: one past the last receive
	next     uint32        // program only: tail plus what is not published
	_        line
	head     atomic.Uint32 // written by the engine: the next receive to be taken
	first    uint32        // engine only: head plus what is not published
	known    uint32        // engine only: tail as last read
	_        line
}

func newReceiveQueue(depth, sges int) *ReceiveQueue {
	n := align.PowerOfTwo(depth)
	return &ReceiveQueue{requests: make([]rdma.ReceiveRequest, n), sges: make([]rdma.SGE, n*sges), mask: uint32(n - 1), perSlot: uint32(sges)}
}

// NewSharedReceiveQueue makes a queue that queue pairs can share.
func NewSharedReceiveQueue(c rdma.SharedReceiveQueueConfig) (*ReceiveQueue, error) {
	c.SGEs = max(1, c.SGEs)
	if c.Depth < 1 || c.Depth > MaxDepth || c.SGEs > MaxPieces {
		return nil, fmt.Errorf("make a shared receive queue for %d requests of %d elements: it can have 1 to %d, of at most %d", c.Depth, c.SGEs, MaxDepth, MaxPieces)
	}
	r := newReceiveQueue(c.Depth, c.SGEs)
	r.shared = true
	return r, nil
}

// Config returns the configuration as granted.
func (r *ReceiveQueue) Config() rdma.SharedReceiveQueueConfig {
	return rdma.SharedReceiveQueueConfig{Depth: int(r.mask) + 1, SGEs: int(r.perSlot)}
}

// Limit requests one event SharedQueueLimit when fewer than n receives are left.
func (r *ReceiveQueue) Limit(n int) { r.limit.Store(int64(n)) }

// PostReceive implements rdma.SharedReceiveQueue.
func (r *ReceiveQueue) PostReceive(requests []rdma.ReceiveRequest, sges []rdma.SGE) (int, error) {
	n, why := r.post(requests, sges)
	if why != nil {
		return n, fmt.Errorf("post receive %d of %d: %w", n+1, len(requests), why)
	}
	return n, nil
}

func (r *ReceiveQueue) post(requests []rdma.ReceiveRequest, sges []rdma.SGE) (n int, why error) {
	head := r.head.Load()
	for ; n < len(requests) && why == nil; n++ {
		q := &requests[n]
		if why = r.refuse(q, head, len(sges)); why != nil {
			break
		}
		slot := r.next & r.mask
		r.requests[slot] = *q
		copy(r.sges[slot*r.perSlot:], sges[:q.SGEs])
		sges = sges[q.SGEs:]
		r.next++
	}
	r.tail.Store(r.next)
	return n, why
}

func (r *ReceiveQueue) refuse(q *rdma.ReceiveRequest, head uint32, left int) error {
	switch {
	case uint64(q.SGEs) > uint64(left):
		return errShortList
	case q.SGEs > r.perSlot:
		return fmt.Errorf("%w: a request has at most %d elements", unix.EINVAL, r.perSlot)
	case r.next-head > r.mask:
		return fmt.Errorf("the queue of %d is full: %w", r.mask+1, unix.ENOMEM)
	}
	return nil
}

// receive is a work request taken from its queue.
type receive struct {
	id    uint64
	taken bool
	room  uint64 // bytes of all elements
	count uint32
	sges  [MaxPieces]rdma.SGE
}

// take takes the next receive, and reports whether there was one.
func (r *ReceiveQueue) take(to *receive) bool {
	if r.empty() {
		return false
	}
	slot := r.first & r.mask
	q := &r.requests[slot]
	to.id, to.taken, to.count, to.room = q.ID, true, q.SGEs, 0
	copy(to.sges[:], r.sges[slot*r.perSlot:][:q.SGEs])
	for i := range to.sges[:to.count] {
		to.room += uint64(to.sges[i].Length)
	}
	r.first++
	return true
}

// single returns the element and ID of the next receive, if that has exactly one element and the
// queue is not shared; otherwise nil. The caller takes the receive by incrementing first.
func (r *ReceiveQueue) single() (s *rdma.SGE, id uint64) {
	if r.shared || r.empty() {
		return nil, 0
	}
	slot := r.first & r.mask
	q := &r.requests[slot]
	if q.SGEs != 1 {
		return nil, 0
	}
	return &r.sges[slot*r.perSlot], q.ID
}

// empty reports whether no published receive is left.
func (r *ReceiveQueue) empty() bool {
	if r.first == r.known {
		r.known = r.tail.Load()
	}
	return r.first == r.known
}

// publish makes the taken receives visible to the program.
func (r *ReceiveQueue) publish() {
	if r.head.Load() != r.first {
		release.Store32(&r.head, r.first)
	}
}

// below reports whether fewer receives are left than the limit, and clears the limit if so.
func (r *ReceiveQueue) below() bool {
	limit := r.limit.Load()
	if limit == 0 || int64(r.tail.Load()-r.first) >= limit {
		return false
	}
	return r.limit.CompareAndSwap(limit, 0)
}

// discard removes all receives. The program must not post at the same time.
func (r *ReceiveQueue) discard() {
	r.first = r.tail.Load()
	r.known = r.first
	r.publish()
}

// scatter copies payload to our elements, from offset on, and reports whether all of their memory
// was accessible. The elements have room for the payload.
func (e *Engine) scatter(d Domain, sges []rdma.SGE, offset uint64, payload []umem.Frame) bool {
	for i := range payload {
		f := &payload[i]
		if !e.scatterBytes(d, sges, offset, e.data[f.Addr:f.Addr+uint64(f.Len)]) {
			return false
		}
		offset += uint64(f.Len)
	}
	return true
}

// scatterBytes does the same as scatter for one slice.
func (e *Engine) scatterBytes(d Domain, sges []rdma.SGE, offset uint64, from []byte) bool {
	for i := 0; len(from) > 0; i++ {
		s := &sges[i]
		size := uint64(s.Length)
		if offset >= size {
			offset -= size
			continue
		}
		n := min(size-offset, uint64(len(from)))
		if !e.keys.local(s.LKey, d, s.Addr+offset, n, rdma.LocalWrite) {
			return false
		}
		e.put(s.Addr+offset, from[:n])
		from, offset = from[n:], 0
	}
	return true
}

// putPayload copies payload to an address that the caller has checked.
func (e *Engine) putPayload(addr uint64, payload []umem.Frame) {
	for i := range payload {
		f := &payload[i]
		e.put(addr, e.data[f.Addr:f.Addr+uint64(f.Len)])
		addr += uint64(f.Len)
	}
}

func (e *Engine) put(addr uint64, from []byte) {
	copy(e.data[addr:addr+uint64(len(from))], from)
	e.counts.add(CopiedBytes, uint64(len(from)))
}
