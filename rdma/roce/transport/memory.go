package transport

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/rdma"
)

// Domain identifies a protection domain. The caller chooses the number.
type Domain uint32

// Keys holds the registrations of parts of one region, and the memory windows on them. A key
// consists of the place in the table and, in its lowest byte, a generation that changes each time
// the place is used. The lkey and rkey of a registration are equal. Addresses are the region's.
//
// The engines that share the table must not run while it changes. They only read it, except for the
// windows that work requests bind.
type Keys struct {
	size    uint64 // of the region
	entries []entry
	free    []uint32
}

// entry is a place in the table: a registration, a window, or unused.
type entry struct {
	key          uint32 // 0: not usable now
	generation   uint8
	taken        bool
	window       bool
	domain       Domain
	access       rdma.Access
	addr, length uint64
	windows      int    // of a registration: the windows bound to it
	qpn          uint32 // of a window: the queue pair that it is bound to
	parent       uint32 // of a window: the place of its registration
}

// errWindows means that memory windows are bound to a registration.
var errWindows = errors.New("memory windows are bound to it: invalidate or close them before")

const maxKeys = 1<<24 - 1

// NewKeys makes a table for a region of size bytes. most bounds the registrations and windows
// together.
func NewKeys(size uint64, most int) (*Keys, error) {
	if most < 1 || most > maxKeys {
		return nil, fmt.Errorf("a table of %d memory keys: it can have 1 to %d", most, maxKeys)
	}
	k := &Keys{size: size, entries: make([]entry, most+1), free: make([]uint32, 0, most)}
	for i := most; i > 0; i-- {
		k.free = append(k.free, uint32(i))
	}
	return k, nil
}

// Register makes a key for length bytes of the region from addr on.
func (k *Keys) Register(d Domain, addr, length uint64, a rdma.Access) (key uint32, err error) {
	if length == 0 || addr > k.size || length > k.size-addr {
		return 0, fmt.Errorf("register %d bytes from %#x: the region has %d", length, addr, k.size)
	}
	if a&(rdma.RemoteWrite|rdma.RemoteAtomic) != 0 && a&rdma.LocalWrite == 0 {
		return 0, fmt.Errorf("register memory with %v: remote write and remote atomic require local write", a)
	}
	i, err := k.take()
	if err != nil {
		return 0, err
	}
	e := &k.entries[i]
	*e = entry{key: keyOf(i, e.generation), generation: e.generation, taken: true, domain: d, access: a, addr: addr, length: length}
	return e.key, nil
}

func keyOf(place uint32, generation uint8) uint32 { return place<<8 | uint32(generation) }

// take finds a free place and gives it a new generation.
func (k *Keys) take() (uint32, error) {
	if len(k.free) == 0 {
		return 0, fmt.Errorf("all %d memory keys are in use: close registrations or windows", len(k.entries)-1)
	}
	i := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	k.entries[i].generation++
	return i, nil
}

// Deregister ends a registration. Requests with its key fail from now on.
func (k *Keys) Deregister(key uint32) error {
	e := k.of(key)
	if e == nil || e.window {
		return fmt.Errorf("end the registration with key %#x: there is none", key)
	}
	if e.windows != 0 {
		return fmt.Errorf("end the registration with key %#x: %w", key, errWindows)
	}
	k.give(key >> 8)
	return nil
}

func (k *Keys) give(place uint32) {
	e := &k.entries[place]
	*e = entry{generation: e.generation}
	k.free = append(k.free, place)
}

// of returns the entry of a key, nil if there is none.
func (k *Keys) of(key uint32) *entry {
	if i := key >> 8; i != 0 && uint64(i) < uint64(len(k.entries)) && k.entries[i].key == key {
		return &k.entries[i]
	}
	return nil
}

// local reports whether a work request may use memory: read it, or with LocalWrite write it.
func (k *Keys) local(key uint32, d Domain, addr, length uint64, need rdma.Access) bool {
	e := k.of(key)
	return e != nil && !e.window && e.grants(d, addr, length, need)
}

// remote reports whether the peer of a queue pair may access memory.
func (k *Keys) remote(key uint32, d Domain, qpn uint32, addr, length uint64, need rdma.Access) bool {
	e := k.of(key)
	return e != nil && (!e.window || e.qpn == qpn) && e.grants(d, addr, length, need)
}

func (e *entry) grants(d Domain, addr, length uint64, need rdma.Access) bool {
	return e.domain == d && e.access&need == need && addr >= e.addr && length <= e.length && addr-e.addr <= e.length-length
}

// Window is a memory window of type 2: a part of a registration that the peer of one queue pair may
// access, from the execution of a Bind until it is invalidated.
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

// RKey returns the key of the last bind that was posted.
func (w *Window) RKey() uint32 { return w.rkey.Load() }

// next returns the key for the next bind.
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

// binding is the content of a bind request.
type binding struct {
	key          uint32 // the window's new one
	parent       uint32 // the registration's
	addr, length uint64
	access       rdma.Access
}

// bind lets the peer of a queue pair use a window. The window, which is of type 2, must not be
// bound already.
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

// invalidate ends the access through a window. A registration cannot be invalidated.
func (k *Keys) invalidate(key uint32, d Domain, qpn uint32) bool {
	e := k.of(key)
	if e == nil || !e.window || e.domain != d || e.qpn != qpn {
		return false
	}
	k.unbind(e)
	return true
}

// Bind posts a request to bind a window to part of the registration with a key. The window's rkey
// is valid once the request is executed.
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
