package transport

import (
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// reply is a READ or atomic of the peer, kept to answer it now and again later. IBTA specification,
// volume 1, 9.7.5.1.
type reply struct {
	kind        wire.Kind // ReadRequest, CompareSwap or FetchAdd; NoKind: none is kept
	pending     bool      // it must be answered, from next on
	again       bool      // it was requested again: the peer may have the answer already
	first, last wire.PSN
	begin       wire.PSN // of the current answer: the packet with opcode FIRST
	next        wire.PSN
	va          uint64
	length      uint32
	rkey        uint32
	original    uint64
	msn         uint32
}

// replies is a ring of the latest replies.
type replies struct {
	ring    []reply
	oldest  int // the place of the next one
	pending int
}

func (r *replies) clear() {
	clear(r.ring)
	r.oldest, r.pending = 0, 0
}

// keepReplies makes room for n replies.
func (r *responder) keepReplies(n int) { r.replies = replies{ring: make([]reply, n)} }

// full reports whether the oldest reply has not been sent: the peer has more requests outstanding
// than it may.
func (r *replies) full() bool {
	return len(r.ring) == 0 || r.ring[r.oldest].pending && !r.ring[r.oldest].again
}

// add stores a reply in place of the oldest.
func (r *replies) add(p reply) {
	if r.ring[r.oldest].pending {
		r.pending--
	}
	p.pending, p.begin, p.next = true, p.first, p.first
	r.ring[r.oldest] = p
	r.pending++
	if r.oldest++; r.oldest == len(r.ring) {
		r.oldest = 0
	}
}

// front returns the oldest reply that must be sent, nil if there is none.
func (r *replies) front() *reply {
	if r.pending == 0 {
		return nil
	}
	for i := range r.ring {
		at := r.oldest + i
		if at >= len(r.ring) {
			at -= len(r.ring)
		}
		if p := &r.ring[at]; p.pending {
			return p
		}
	}
	return nil
}

func (r *replies) done(p *reply) {
	p.pending = false
	r.pending--
}

// drop discards the pending replies.
func (r *replies) drop() {
	for i := range r.ring {
		r.ring[i].pending = false
	}
	r.pending = 0
}

// replay makes the answer to a repeated request pending again, if it is kept.
func (r *replies) replay(h *wire.Header, mtu uint32, fresh bool) bool {
	for i := range r.ring {
		p := &r.ring[i]
		if p.kind != h.Opcode.Kind() || h.PSN.Before(p.first) || h.PSN.After(p.last) || !p.covers(h, mtu) {
			continue
		}
		if !p.pending {
			p.pending = true
			r.pending++
		}
		p.next, p.begin, p.again = h.PSN, p.first, true
		if fresh {
			p.begin = h.PSN
		}
		return true
	}
	return false
}

// covers reports whether a repeated request is the rest of the original one.
func (p *reply) covers(h *wire.Header, mtu uint32) bool {
	if p.kind != wire.ReadRequest {
		return h.PSN == p.first && h.VA == p.va && h.RKey == p.rkey
	}
	done := uint64(h.PSN.Distance(p.first)) * uint64(mtu)
	return h.RKey == p.rkey && h.VA == p.va+done && uint64(h.DMALength)+done == uint64(p.length)
}
