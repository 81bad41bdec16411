package transport

import (
	"fmt"
	"sync/atomic"
)

// handles are the address handles: ways to peers for datagrams. Each is one word, written by the
// engine's thread and read by those that post.
type handles struct {
	words []atomic.Uint64
	free  []uint32
}

// inUse marks a handle; beside it are the domain and the peer.
const inUse = 1 << 63

const maxDomain = 1<<31 - 1

func newHandles(n int) handles {
	h := handles{words: make([]atomic.Uint64, n), free: make([]uint32, 0, n)}
	for i := n; i > 0; i-- {
		h.free = append(h.free, uint32(i-1))
	}
	return h
}

// NewAddressHandle makes a handle for datagrams to a peer, which queue pairs of the domain can use.
func (e *Engine) NewAddressHandle(d Domain, p Peer) (id uint32, err error) {
	h := &e.handles
	if len(h.free) == 0 || d > maxDomain {
		return 0, fmt.Errorf("make an address handle: all %d are in use", len(h.words))
	}
	id = h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	h.words[id].Store(inUse | uint64(d)<<32 | uint64(p))
	return id, nil
}

// CloseAddressHandle ends a handle: requests that name it are refused, and those posted before fail.
func (e *Engine) CloseAddressHandle(id uint32) {
	h := &e.handles
	if uint64(id) < uint64(len(h.words)) && h.words[id].Swap(0) != 0 {
		h.free = append(h.free, id)
	}
}

// find is the peer of a handle. Any thread may ask.
func (h *handles) find(id uint32, d Domain) (Peer, bool) {
	if uint64(id) >= uint64(len(h.words)) {
		return 0, false
	}
	w := h.words[id].Load()
	return Peer(w), w&inUse != 0 && Domain(w>>32&maxDomain) == d
}
