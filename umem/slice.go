package umem

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
)

// SliceConfig is the memory of one program that may attach to the daemon.
type SliceConfig struct {
	Name string // unique
	In   uint64 // bytes that the program may only read, rounded up to whole pages
	Out  uint64 // bytes that the program may write, rounded up to whole pages
	// Ordinary says that In, too, is on ordinary pages. A program can then map a part of it.
	Ordinary bool
}

// Slice is the memory of one program. It lies behind the region's frames and extents, and devices
// register it with them.
type Slice struct {
	Name string
	In   *Part // the program may only read it; nil: it has none
	Out  *Part // the program may write it; nil: it has none
}

// Part is frames with a memfd of their own, which a program maps. The frames have a pool of their
// own: [Holder.TakeFrom] takes them, and every way of giving frames back returns them to it.
//
// A program that may write a memfd can also remove its pages by fallocate, and only a seal forbids
// that, which also forbids to map it. So the part that a program writes is on ordinary pages: the
// kernel then replaces removed pages by empty ones, where a missing huge page would be a SIGBUS.
type Part struct {
	base, size uint64
	number     int // in layout.parts
	file       *os.File
}

// Base returns the offset of the part's first byte in the region.
func (p *Part) Base() uint64 { return p.base }

// Size returns the length of the part in bytes.
func (p *Part) Size() uint64 { return p.size }

// Contains reports whether an offset in the region is in the part.
func (p *Part) Contains(addr uint64) bool { return addr-p.base < p.size }

// File returns the memfd for the program. It is open for reading only if the program may only read
// the part. The region owns it.
func (p *Part) File() *os.File { return p.file }

// Slices returns the slices of the region, in the order of its configuration.
func (r *Region) Slices() []*Slice { return r.slices }

// Slice returns the slice with a name, or nil.
func (r *Region) Slice(name string) *Slice {
	for _, s := range r.slices {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// TakeFrom is Take for the frames of a part.
func (h *Holder) TakeFrom(p *Part, dst []Frame) int {
	r := h.book.region
	return h.take(dst, &r.pool.parts[p.number], r.frameSize)
}

// protect seals the memfd against everything that could take pages away or change the part behind
// the region's back: its size, the set of seals and, if the program may only read it, writing by
// anybody but the mappings that exist.
func (p *Part) protect(readOnly bool) error {
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if readOnly {
		seals |= unix.F_SEAL_FUTURE_WRITE
	}
	if _, err := unix.FcntlInt(p.file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal the memory of an attached program: %w", err)
	}
	if !readOnly {
		return nil
	}
	writable := p.file
	path := fmt.Sprintf("/proc/self/fd/%d", writable.Fd())
	only, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open the memory of an attached program for reading only: %w", err)
	}
	p.file = only
	return writable.Close()
}

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
		return align.Up(off, page)
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
