package umem

import "sync"

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
