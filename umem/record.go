package umem

import "fmt"

// poolID is the holder number of the pool.
const poolID = 0

// newHolderID finds a free holder number; the pool's lock is held.
func (r *Region) newHolderID() (uint16, error) {
	for id := 1; id < len(r.holders); id++ {
		if r.holders[id] == nil {
			return uint16(id), nil
		}
	}
	if len(r.holders) > 0xffff {
		return 0, fmt.Errorf("region has %d holders already: close some queues", len(r.holders)-1)
	}
	r.holders = append(r.holders, nil)
	return uint16(len(r.holders) - 1), nil
}

// setHolder moves the record of the frame at addr and returns how many frames
// that is. The record belongs to the frame's owner, so it needs no lock.
func (r *Region) setHolder(addr uint64, from, to uint16) int64 {
	i := r.record(addr)
	if Invariants && r.records[i] != from {
		panic(fmt.Sprintf("umem: frame at %#x belongs to %s, not to %s", addr, r.holderName(r.records[i]), r.holderName(from)))
	}
	r.records[i] = to
	return r.units(addr)
}

func (r *Region) holderName(id uint16) string {
	if id == poolID {
		return "the pool"
	}
	if h := r.holders[id]; h != nil {
		return h.name
	}
	return "a closed holder"
}

// eachRecord calls f with the first address and holder of every frame and
// extent. Other threads may be passing frames of theirs meanwhile: a record is two
// bytes and changes only between other holders, so either value read says that
// the frame is not the caller's; hence no race detector here.
//
//go:norace
func (r *Region) eachRecord(f func(addr uint64, id uint16)) {
	for i := range r.frames {
		f(i*uint64(r.frameSize), r.records[i])
	}
	for i := range r.extents {
		addr := r.extentBase + i*r.extentSize
		f(addr, r.records[r.record(addr)])
	}
}

// poison fills a released frame in builds that check invariants, so that a use
// after release shows.
func (r *Region) poison(addr uint64) {
	if !Invariants {
		return
	}
	n := uint64(r.frameSize)
	start := addr &^ (n - 1)
	if r.isExtent(addr) {
		start, n = r.extentOf(addr), r.extentSize
	}
	b := r.data[start : start+n]
	b[0] = 0xCC
	for done := 1; done < len(b); done *= 2 {
		copy(b[done:], b[:done])
	}
}

// dropBook forgets a book that holds no frames.
func (r *Region) dropBook(b *Book) error {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	for i, other := range r.books {
		if other == b {
			r.books = append(r.books[:i], r.books[i+1:]...)
		}
	}
	for _, h := range *b.holders.Load() {
		r.holders[h.id] = nil
	}
	return nil
}
