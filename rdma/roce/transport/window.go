package transport

import (
	"fmt"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/rdma"
)

// Window is a memory window of type 2: part of a registration that the peer of one queue pair may
// reach from when a Bind is executed until it is invalidated.
type Window struct {
	place uint32
	rkey  atomic.Uint32 // of the last bind posted
}

// NewWindow makes a window that is not bound.
func (k *Keys) NewWindow(d Domain) (*Window, error) {
	i, err := k.take()
	if err != nil {
		return nil, err
	}
	e := &k.entries[i]
	*e = entry{generation: e.generation, taken: true, window: true, domain: d}
	w := &Window{place: i}
	w.rkey.Store(keyOf(i, e.generation))
	return w, nil
}

// RKey is the key of the last bind that was posted.
func (w *Window) RKey() uint32 { return w.rkey.Load() }

// next is the key that the next bind gives.
func (w *Window) next() uint32 {
	return keyOf(w.place, uint8(w.rkey.Load())+1)
}

// CloseWindow ends a window, bound or not. Closing again does nothing.
func (k *Keys) CloseWindow(w *Window) {
	e := &k.entries[w.place]
	if !e.window || !e.taken {
		return
	}
	k.unbind(e)
	e.generation = uint8(w.rkey.Load())
	k.give(w.place)
	w.place = 0
}

func (k *Keys) unbind(e *entry) {
	if e.key != 0 {
		k.entries[e.parent].windows--
		e.key = 0
	}
}

// binding is what a bind asks for, as a work request carries it.
type binding struct {
	key          uint32 // the window's new one
	parent       uint32 // the registration's
	addr, length uint64
	access       rdma.Access
}

// bind lets the peer of a queue pair use a window. A window of type 2 must not be bound already.
func (k *Keys) bind(d Domain, qpn uint32, b binding) bool {
	e, parent := k.at(b.key>>8), k.of(b.parent)
	if e == nil || !e.window || e.key != 0 || e.domain != d || parent == nil || parent.window {
		return false
	}
	need := rdma.BindWindows
	if b.access&(rdma.RemoteWrite|rdma.RemoteAtomic) != 0 {
		need |= rdma.LocalWrite
	}
	if b.length == 0 || !parent.grants(d, b.addr, b.length, need) {
		return false
	}
	parent.windows++
	e.key, e.generation, e.parent, e.qpn = b.key, uint8(b.key), b.parent>>8, qpn
	e.addr, e.length, e.access = b.addr, b.length, b.access&rdma.Remote
	return true
}

func (k *Keys) at(place uint32) *entry {
	if place == 0 || uint64(place) >= uint64(len(k.entries)) || !k.entries[place].taken {
		return nil
	}
	return &k.entries[place]
}

// invalidate ends what a window lets the peer of a queue pair do. Registrations cannot be ended so.
func (k *Keys) invalidate(key uint32, d Domain, qpn uint32) bool {
	e := k.of(key)
	if e == nil || !e.window || e.domain != d || e.qpn != qpn {
		return false
	}
	k.unbind(e)
	return true
}

// Bind posts a request to bind a window to part of the registration with that key. The rkey is good once the
// request is executed.
func (q *QueuePair) Bind(id uint64, w *Window, key uint32, addr, length uint64, a rdma.Access, f rdma.Flags) error {
	next := w.next()
	r := rdma.SendRequest{ID: id, Op: opBind, Flags: f & (rdma.Fence | rdma.Signaled), RKey: next, RemoteAddr: addr, Compare: length,
		Swap: uint64(a&rdma.Remote)<<32 | uint64(key)}
	if why := q.refuseState(); why != nil {
		return fmt.Errorf("bind a memory window with %v: %w", q, why)
	}
	if !q.sq.put(&r, nil) {
		return fmt.Errorf("bind a memory window with %v: %w", q, q.sq.full())
	}
	w.rkey.Store(next)
	q.sq.publish()
	q.engine.ring(q.slot)
	return nil
}

// opBind is IBV_WR_BIND_MW.
const opBind rdma.Op = 8

func bindingOf(r *rdma.SendRequest) binding {
	return binding{r.RKey, uint32(r.Swap), r.RemoteAddr, r.Compare, rdma.Access(r.Swap >> 32)}
}
