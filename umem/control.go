package umem

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrNoControl says that the control area is absent or has no room.
var ErrNoControl = errors.New("the region's control area has no room")

// control is the memory that no registration reaches, and its pieces.
type control struct {
	mem    []byte
	mapped addressRange
	mu     sync.Mutex
	taken  []*ControlPiece // in ascending order
}

// ControlPiece is a run of bytes of the control area.
type ControlPiece struct {
	from      *control
	off       uint64
	mem       []byte
	abandoned bool // under from.mu
}

// TakeControl returns size bytes of the control area, a multiple of the machine's page size. If they fit
// one huge page, they are in one: kernels before 6.9 need a ring's memory in one piece. The bytes have the
// values that the last user left. Any goroutine may call it. The error is ErrNoControl.
func (r *Region) TakeControl(size uint64) (*ControlPiece, error) {
	c := &r.control
	c.mu.Lock()
	defer c.mu.Unlock()
	off, at := uint64(0), 0
	for at < len(c.taken) && off+size > c.taken[at].off {
		off = inOnePage(c.taken[at].off+uint64(len(c.taken[at].mem)), size)
		at++
	}
	if off+size > uint64(len(c.mem)) {
		return nil, ErrNoControl
	}
	p := &ControlPiece{from: c, off: off, mem: c.mem[off : off+size : off+size]}
	c.taken = slices.Insert(c.taken, at, p)
	return p, nil
}

// inOnePage moves an offset to the next huge page if size bytes would otherwise be in two.
func inOnePage(off, size uint64) uint64 {
	page := Huge2M.Bytes()
	if size <= page && off/page != (off+size-1)/page {
		return roundUp(off, page)
	}
	return off
}

// inUse returns why the control area cannot be unmapped.
func (c *control) inUse() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, p := range c.taken {
		if !p.abandoned {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("close region: pieces of its control area still taken: %d; close the queues whose rings are in them first", n)
	}
	return nil
}

// Memory returns the piece's bytes, valid until Release.
func (p *ControlPiece) Memory() []byte { return p.mem }

// Release returns the piece. Neither the kernel nor anything else may use it afterwards. A second
// call does nothing.
func (p *ControlPiece) Release() {
	p.from.mu.Lock()
	defer p.from.mu.Unlock()
	if i := slices.Index(p.from.taken, p); i >= 0 {
		p.from.taken = slices.Delete(p.from.taken, i, i+1)
	}
}

// Abandon marks the piece as unused by this process although the kernel may still have its pages
// pinned. It is not used again, and the region can be closed.
func (p *ControlPiece) Abandon() {
	p.from.mu.Lock()
	defer p.from.mu.Unlock()
	p.abandoned = true
}
