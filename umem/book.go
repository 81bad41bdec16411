package umem

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Book is one thread's record of the frames it and its devices hold. Its
// methods, and those of its Holders, are called by that thread only; ownership of
// the Book itself may be handed from goroutine to goroutine.
type Book struct {
	region  *Region
	name    string
	holders atomic.Pointer[[]*Holder] // written by the owner under the pool's lock, read by Snapshot
	seq     atomic.Uint32             // odd while counts are being published
}

// Holder is one place of a Book where frames can be: a device's queue, or the
// worker's own hands.
type Holder struct {
	book      *Book
	owner     Owner
	id        uint16
	name      string
	held      int64        // frames; the owner's private count
	published atomic.Int64 // held as of the last Publish; read by Snapshot
}

// NewBook opens a book, named for people, with no frames.
func (r *Region) NewBook(name string) *Book {
	b := &Book{region: r, name: name}
	b.holders.Store(new([]*Holder))
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.books = append(r.books, b)
	return b
}

// Close removes the book and its holders. Frames still held are an error that
// names who has them, and the book stays. Closing again does nothing.
func (b *Book) Close() error {
	for _, h := range *b.holders.Load() {
		if h.held != 0 {
			return fmt.Errorf("close book %s: %s still holds %d frames", b.name, h.name, h.held)
		}
	}
	b.region.dropBook(b)
	return nil
}

// Region is where the book's frames lie.
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

// Name is the holder's name, for people.
func (h *Holder) Name() string { return h.name }

// Book returns the holder's book.
func (h *Holder) Book() *Book { return h.book }

// Held is the number of frames the holder has now.
func (h *Holder) Held() int64 { return h.held }

// Close removes a holder that has no frames; if it has some they go to the pool
// first, and their number is returned.
func (h *Holder) Close() int64 {
	n := h.Recall()
	b, r := h.book, h.book.region
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	if !slices.Contains(*b.holders.Load(), h) {
		return n
	}
	b.publish() // what it passed on and not published yet would be missing from Snapshot
	if r.holders[h.id] == h {
		r.holders[h.id] = nil
	}
	h.leaveBook()
	return n
}

// PassTo hands frames on to another holder of the same book.
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

// Take fills dst with frames of the pool, each of the full frame size, and
// returns how many there were. It takes the pool's lock: for start, end and
// fan-out, not for the steady state.
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

// Give puts frames back into the pool, under its lock.
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

// Recall puts every frame recorded under the holder back into the pool, also
// those a dead device never returned, and says how many. It reads the whole
// record: for Close only, when the device can no longer touch them.
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

// Publish shows the book's counts to Snapshot. The worker calls it once per
// round.
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
