package umem

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Book is one thread's record of the frames that it and its devices hold. Only that thread calls
// its methods, and those of its Holders. A goroutine may pass the Book to another one.
type Book struct {
	region  *Region
	name    string
	holders atomic.Pointer[[]*Holder] // the owner writes it under the pool's lock; Snapshot reads it
	seq     atomic.Uint32             // odd during a Publish
}

// Holder is one place of a Book where frames can be: a device's queue, or the worker itself.
type Holder struct {
	book      *Book
	owner     Owner
	id        uint16
	name      string
	held      int64        // frames; the owner's private count
	published atomic.Int64 // held at the last Publish; Snapshot reads it
}

// NewBook opens a book without frames. name is for people.
func (r *Region) NewBook(name string) *Book {
	b := &Book{region: r, name: name}
	b.holders.Store(new([]*Holder))
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.books = append(r.books, b)
	return b
}

// Close removes the book and its holders. If frames are still held, it returns an error that names
// the holders, and the book stays. A second call does nothing.
func (b *Book) Close() error {
	for _, h := range *b.holders.Load() {
		if h.held != 0 {
			return fmt.Errorf("close book %s: %s still holds %d frames", b.name, h.name, h.held)
		}
	}
	b.region.dropBook(b)
	return nil
}

// Region returns the region of the book's frames.
func (b *Book) Region() *Region { return b.region }

// NewHolder adds a place where frames can be.
func (b *Book) NewHolder(owner Owner, name string) (*Holder, error) {
	r := b.region
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	id, err := r.newHolderID()
	if err != nil {
		return nil, err
	}
	h := &Holder{book: b, owner: owner, id: id, name: name}
	r.holders[id] = h
	b.replaceHolders(append((*b.holders.Load())[:len(*b.holders.Load()):len(*b.holders.Load())], h))
	return h, nil
}

func (b *Book) replaceHolders(hs []*Holder) { b.holders.Store(&hs) }

// Name returns the holder's name, for people.
func (h *Holder) Name() string { return h.name }

// Book returns the holder's book.
func (h *Holder) Book() *Book { return h.book }

// Held returns the number of frames that the holder has now.
func (h *Holder) Held() int64 { return h.held }

// Close removes a holder. If it has frames, they go to the pool first. Close returns their number.
func (h *Holder) Close() int64 {
	n := h.Recall()
	b, r := h.book, h.book.region
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	if !slices.Contains(*b.holders.Load(), h) {
		return n
	}
	b.publish() // otherwise Snapshot would miss frames passed on since the last Publish
	if r.holders[h.id] == h {
		r.holders[h.id] = nil
	}
	h.leaveBook()
	return n
}

// PassTo passes frames to another holder of the same book.
func (h *Holder) PassTo(to *Holder, fs []Frame) {
	r := h.book.region
	var n int64
	if Invariants {
		n = r.passChecked(h, to, fs)
	} else {
		n = r.pass(to.id, fs)
	}
	h.held -= n
	to.held += n
}

// Take fills dst with frames of the pool, each of the full frame size, and returns how many there were. It
// takes the pool's lock: use it at the start, at the end and for fan-out, but not in the steady state.
func (h *Holder) Take(dst []Frame) int {
	r := h.book.region
	return h.take(dst, &r.pool.frames, r.frameSize)
}

// TakeExtents is Take for extents; each Frame stands for a whole extent.
func (h *Holder) TakeExtents(dst []Frame) int {
	r := h.book.region
	return h.take(dst, &r.pool.extents, uint32(r.extentSize))
}

func (h *Holder) take(dst []Frame, stack *[]uint64, length uint32) int {
	r := h.book.region
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	n := pop(stack, dst, length)
	for i := range dst[:n] {
		h.held += r.setHolder(dst[i].Addr, poolID, h.id)
	}
	h.book.publish()
	return n
}

// TakeAt takes the frames and extents that begin at the addresses of fs, also in parts, as far as they are in the pool. It sets
// their Len to the full size, and that of the others to 0. It takes the pool's lock, and time that grows with the
// pool: use it at the start.
func (h *Holder) TakeAt(fs []Frame) (n int) {
	r := h.book.region
	wanted := make(map[uint64]int, len(fs))
	for i := range fs {
		fs[i].Len = 0
		wanted[fs[i].Addr] = i
	}
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	stacks := map[*[]uint64]uint32{&r.pool.frames: r.frameSize, &r.pool.extents: uint32(r.extentSize)}
	for i := range r.pool.parts {
		stacks[&r.pool.parts[i]] = r.frameSize
	}
	for stack, length := range stacks {
		left := (*stack)[:0]
		for _, addr := range *stack {
			i, is := wanted[addr]
			if !is {
				left = append(left, addr)
				continue
			}
			fs[i].Len = length
			h.held += r.setHolder(addr, poolID, h.id)
			n++
		}
		*stack = left
	}
	h.book.publish()
	return n
}

// Give returns frames to the pool. It takes the pool's lock.
func (h *Holder) Give(fs []Frame) {
	r := h.book.region
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	for i := range fs {
		h.held -= r.setHolder(fs[i].Addr, h.id, poolID)
		r.poison(fs[i].Addr)
		r.pool.push(&r.layout, fs[i].Addr)
	}
	h.book.publish()
}

// Recall returns every frame recorded under the holder to the pool, and returns how many. That
// includes frames that a dead device never returned. It reads the whole record. Call it only for
// Close, when the device can no longer access the frames.
func (h *Holder) Recall() int64 {
	if h.held == 0 {
		return 0
	}
	r := h.book.region
	before := h.held
	var one [1]Frame
	r.eachRecord(func(addr uint64, id uint16) {
		if id == h.id {
			one[0] = Frame{Addr: addr}
			h.Give(one[:])
		}
	})
	return before - h.held
}

// Publish publishes the book's counts to Snapshot. The worker calls it once per round.
func (b *Book) Publish() { b.publish() }

func (b *Book) publish() {
	b.seq.Add(1)
	for _, h := range *b.holders.Load() {
		if h.published.Load() != h.held {
			h.published.Store(h.held)
		}
	}
	b.seq.Add(1)
}
