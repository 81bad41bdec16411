package umem

import (
	"fmt"
	"slices"
	"sync"
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

// NewSharedHolder makes a holder that shares its frames with another holder, of a book of the same
// thread: several flows fill and empty one ring. One holder may take out frames that the other put
// in. Held of each is the number of frames put in through it minus those taken out through it. It
// may be negative; the sum is right. Each holder ends with Merge, the last one with Close.
func (b *Book) NewSharedHolder(of *Holder, name string) (*Holder, error) {
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

// Merge removes a holder and adds its count to another holder that shares its frames. It must run
// on the thread of both.
func (h *Holder) Merge(to *Holder) {
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

// pool has the frames and extents that no holder has, as stacks of addresses. Its lock also
// orders transfers between books, so that a Snapshot taken under it adds up.
type pool struct {
	mu      sync.Mutex
	frames  []uint64
	extents []uint64
	parts   [][]uint64 // by part of a slice
}

// fill pushes every frame and extent so that they are taken in ascending order.
func (p *pool) fill(l layout) {
	p.frames = make([]uint64, 0, l.frames)
	for i := l.frames; i > 0; i-- {
		p.frames = append(p.frames, (i-1)*uint64(l.frameSize))
	}
	p.extents = make([]uint64, 0, l.extents)
	for i := l.extents; i > 0; i-- {
		p.extents = append(p.extents, l.extentBase+(i-1)*l.extentSize)
	}
	p.parts = make([][]uint64, len(l.parts))
	for n, part := range l.parts {
		for i := part.size / uint64(l.frameSize); i > 0; i-- {
			p.parts[n] = append(p.parts[n], part.base+(i-1)*uint64(l.frameSize))
		}
	}
}

// pop moves addresses from the stack to dst with the given length each.
func pop(stack *[]uint64, dst []Frame, length uint32) int {
	n := min(len(dst), len(*stack))
	for i := range dst[:n] {
		last := len(*stack) - 1
		dst[i] = Frame{Addr: (*stack)[last], Len: length}
		*stack = (*stack)[:last]
	}
	return n
}

// push returns the frame or extent that contains addr. The stacks have room for everything, so this
// never allocates.
func (p *pool) push(l *layout, addr uint64) {
	if l.isExtent(addr) {
		p.extents = append(p.extents, l.extentOf(addr))
		return
	}
	addr &^= uint64(l.frameSize - 1)
	if n := l.part(addr); n >= 0 {
		p.parts[n] = append(p.parts[n], addr)
		return
	}
	p.frames = append(p.frames, addr)
}

// held returns the number of frames in the pool, including those of extents.
func (p *pool) held(l *layout) int64 {
	n := int64(len(p.frames)) + int64(len(p.extents))*l.framesPerExtent()
	for _, stack := range p.parts {
		n += int64(len(stack))
	}
	return n
}

// Owner is a kind of holder. Frames are counted by it.
type Owner uint8

const (
	// OwnerPool has the free frames.
	OwnerPool Owner = iota
	// OwnerWorker has frames between two ports.
	OwnerWorker
	// OwnerXDP has frames in the rings of an AF_XDP socket or the driver's.
	OwnerXDP
	// OwnerNVMe has frames of submitted block I/O.
	OwnerNVMe
	// OwnerRDMA has frames of posted work requests.
	OwnerRDMA
	// OwnerGranted has frames that a peer may write over RDMA.
	OwnerGranted
	// OwnerShared has frames that several queue pairs send at once.
	OwnerShared
	// OwnerCache has frames with blocks of a disk, to be sent again.
	OwnerCache
	// OwnerAttached has frames that an attached program has.
	OwnerAttached

	owners
)

var ownerNames = [owners]string{"pool", "worker", "xdp", "nvme", "rdma", "granted", "shared", "cache", "attached"}

func (o Owner) String() string { return ownerNames[o] }

// Owners lists every kind of holder.
func Owners() []Owner {
	return []Owner{OwnerPool, OwnerWorker, OwnerXDP, OwnerNVMe, OwnerRDMA, OwnerGranted, OwnerShared, OwnerCache, OwnerAttached}
}
