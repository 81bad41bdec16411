package umem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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

// Protect seals the memfd against everything that could take pages away or change the part behind
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
