package umem

import (
	"fmt"
	"slices"
)

// poolID is the holder number of the pool.
const poolID = 0

// newHolderID finds a free holder number. The caller holds the pool's lock.
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

// Has reports whether the holder has the frame that contains an offset in the region.
func (h *Holder) Has(addr uint64) bool {
	r := h.book.region
	return addr < r.whole && r.records[r.record(addr)] == h.id
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

// pass moves the records of fs and returns how many frames that is.
func (r *Region) pass(to uint16, fs []Frame) (n int64) {
	for {
		done := r.passFrames(to, fs)
		n += int64(done)
		if done == len(fs) {
			return n
		}
		r.records[r.record(fs[done].Addr)] = to
		n += r.framesPerExtent()
		fs = fs[done+1:]
	}
}

// passFrames moves the records of fs up to the first extent and returns how many those are. The
// loop has no calls, so that the compiler can keep it in registers.
func (r *Region) passFrames(to uint16, fs []Frame) int {
	records, base, in, shift := r.records, r.extentBase, r.inExtents, r.shift&63
	for i := range fs {
		addr := fs[i].Addr
		if addr-base < in {
			return i
		}
		records[addr>>shift] = to
	}
	return len(fs)
}

// passChecked is pass in builds that check invariants.
func (r *Region) passChecked(from, to *Holder, fs []Frame) (n int64) {
	if from.book != to.book {
		panic(fmt.Sprintf("umem: %s of book %s passes frames to %s of book %s: only the pool is between books",
			from.name, from.book.name, to.name, to.book.name))
	}
	for i := range fs {
		n += r.setHolder(fs[i].Addr, from.id, to.id)
	}
	return n
}

func (r *Region) holderName(id uint16) string {
	if id == poolID {
		return "the pool"
	}
	if int(id) < len(r.holders) && r.holders[id] != nil {
		return r.holders[id].name
	}
	return "a closed holder"
}

// eachRecord calls f with the first address and holder of every frame and extent. Other threads may
// pass their frames during the call. A record is two bytes and changes only between other holders. So
// both the old and the new value say that the frame is not the caller's. Hence no race detector here.
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
	for i := r.size >> r.shift; i < r.whole>>r.shift; i++ {
		f(i<<r.shift, r.records[i])
	}
}

// poison fills a released frame in builds that check invariants, so that a use after release is visible. It leaves the
// memory that an attached program writes: there a message waits to be sent again, after the daemon has released its
// frame.
func (r *Region) poison(addr uint64) {
	if !Invariants || slices.ContainsFunc(r.slices, func(s *Slice) bool { return s.Out != nil && s.Out.Contains(addr) }) {
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

// dropBook removes a book that has no frames.
func (r *Region) dropBook(b *Book) {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.books = slices.DeleteFunc(r.books, func(other *Book) bool { return other == b })
	for _, h := range *b.holders.Load() {
		if r.holders[h.id] == h {
			r.holders[h.id] = nil
		}
	}
	b.replaceHolders(nil)
}
