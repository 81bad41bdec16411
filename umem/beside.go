package umem

import (
	"fmt"
	"slices"
)

// NewHolderBeside makes a holder that shares its frames with another holder, of a book of the same
// thread: several flows fill and empty one ring. One holder may take out frames that the other put
// in. Held of each is the number of frames put in through it minus those taken out through it. It
// may be negative; the sum is right. Each holder ends with Yield, the last one with Close.
func (b *Book) NewHolderBeside(of *Holder, name string) (*Holder, error) {
	r := b.region
	if of.book.region != r {
		return nil, fmt.Errorf("%s is of another region than %s", name, of.name)
	}
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	if r.holders[of.id] == nil {
		return nil, fmt.Errorf("%s is closed: nothing is beside it", of.name)
	}
	h := &Holder{book: b, owner: of.owner, id: of.id, name: name}
	b.replaceHolders(append((*b.holders.Load())[:len(*b.holders.Load()):len(*b.holders.Load())], h))
	return h, nil
}

// Yield removes a holder and adds its count to another holder that shares its frames. It must run
// on the thread of both.
func (h *Holder) Yield(to *Holder) {
	r := h.book.region
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	if h.id != to.id || h == to {
		panic(fmt.Sprintf("umem: %s yields to %s, which is no holder beside it", h.name, to.name))
	}
	to.held += h.held
	h.held = 0
	h.book.publish()
	to.book.publish()
	if r.holders[h.id] == h {
		r.holders[h.id] = to
	}
	h.leaveBook()
}

// leaveBook removes the holder from its book. The caller holds the pool's lock.
func (h *Holder) leaveBook() {
	all := slices.Clone(*h.book.holders.Load())
	h.book.replaceHolders(slices.DeleteFunc(all, func(other *Holder) bool { return other == h }))
}
