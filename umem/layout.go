package umem

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/unifiedd/unifiedd/internal/align"
)

// layout describes where frames and extents are. All sizes are in bytes. Frames come first, then extents, then
// the parts of slices.
type layout struct {
	size       uint64 // of frames and extents
	whole      uint64 // of all
	frameSize  uint32
	shift      uint8 // log2 of frameSize
	frames     uint64
	extentBase uint64
	extentSize uint64
	extents    uint64
	inExtents  uint64 // extentSize * extents
	parts      []place
}

// place is where a part of a slice is.
type place struct{ base, size uint64 }

func (p place) contains(addr uint64) bool { return addr-p.base < p.size }

// maxBuffer is the largest buffer that io_uring registers: io_buffer_validate in the kernel's
// io_uring/rsrc.c. Extents are powers of two of at most this size and aligned to their size, so
// none is in two buffers.
const maxBuffer = 1 << 30

// maxSize is the largest region: half of a 47-bit address space.
const maxSize = 1 << 46

func newLayout(c Config) (layout, error) {
	l := layout{frameSize: c.FrameSize, extentSize: c.ExtentSize, extents: c.Extents}
	if l.frameSize != 2048 && l.frameSize != 4096 {
		return l, fmt.Errorf("frame size %d: the kernel's AF_XDP takes 2048 or 4096", c.FrameSize)
	}
	l.shift = uint8(bits.TrailingZeros32(l.frameSize))
	if err := l.checkExtents(); err != nil {
		return l, err
	}
	if c.Size == 0 || c.Size > maxSize {
		return l, fmt.Errorf("region size %d: it must be from one frame to %d bytes", c.Size, uint64(maxSize))
	}
	l.size = align.Up(c.Size, c.Pages.Bytes())
	taken := l.extentSize * l.extents
	if taken > l.size-uint64(l.frameSize) {
		return l, fmt.Errorf("region of %d bytes has no room for frames in addition to %d extents of %d bytes: raise its size", c.Size, l.extents, l.extentSize)
	}
	l.extentBase = l.size
	if l.extents > 0 {
		l.extentBase = (l.size - taken) &^ (l.extentSize - 1)
	}
	if l.extentBase < uint64(l.frameSize) {
		return l, fmt.Errorf("region of %d bytes has no room for frames in addition to its extents: raise its size", c.Size)
	}
	l.frames = l.extentBase / uint64(l.frameSize)
	l.inExtents = taken
	return l, l.placeSlices(c)
}

// MaxSlices is the largest number of slices. Each has one file at most among those of a [Memory].
const MaxSlices = 256

// placeSlices places the parts of slices behind the extents.
func (l *layout) placeSlices(c Config) error {
	if len(c.Slices) > MaxSlices {
		return fmt.Errorf("%d slices: at most %d", len(c.Slices), MaxSlices)
	}
	l.whole = l.size
	for i, s := range c.Slices {
		if slices.ContainsFunc(c.Slices[:i], func(other SliceConfig) bool { return other.Name == s.Name }) {
			return fmt.Errorf("slice %q is there twice", s.Name)
		}
		for _, n := range []uint64{s.In, s.Out} {
			if n == 0 {
				continue
			}
			if n > maxSize || l.whole+n > maxSize {
				return fmt.Errorf("slice %q of %d and %d bytes: all of the region is at most %d bytes", s.Name, s.In, s.Out, uint64(maxSize))
			}
			p := place{l.whole, align.Up(n, c.partPages().Bytes())}
			l.parts = append(l.parts, p)
			l.whole += p.size
		}
	}
	return nil
}

// partPages returns the pages whose size all parts of slices are multiples of.
func (c Config) partPages() PageSize {
	if c.Pages == Ordinary {
		return Ordinary
	}
	return Huge2M
}

func (l *layout) checkExtents() error {
	if l.extents == 0 {
		return nil
	}
	if bits.OnesCount64(l.extentSize) != 1 || l.extentSize < uint64(l.frameSize) || l.extentSize > maxBuffer {
		return fmt.Errorf("extent size %d: it must be a power of two from one frame (%d) to 1 GiB", l.extentSize, l.frameSize)
	}
	if l.extents > 1<<20 {
		return fmt.Errorf("%d extents: at most %d", l.extents, 1<<20)
	}
	return nil
}

func (l *layout) isExtent(addr uint64) bool { return addr-l.extentBase < l.inExtents }

// part returns the number of the part with addr, or -1.
func (l *layout) part(addr uint64) int {
	return slices.IndexFunc(l.parts, func(p place) bool { return p.contains(addr) })
}

func (l *layout) extentOf(addr uint64) uint64 { return addr &^ (l.extentSize - 1) }

func (l *layout) framesPerExtent() int64 { return int64(l.extentSize >> l.shift) }

// total returns the number of frames, including those of extents. Bytes that the alignment of the
// extents leaves unused are not counted.
func (l *layout) total() int64 {
	return int64(l.frames) + int64(l.extents)*l.framesPerExtent() + int64((l.whole-l.size)>>l.shift)
}

// record returns the index of the record with addr's owner.
func (l *layout) record(addr uint64) uint64 {
	if l.isExtent(addr) {
		addr = l.extentOf(addr)
	}
	return addr >> l.shift
}

// units returns how many frames change owner when the frame at addr does.
func (l *layout) units(addr uint64) int64 {
	if l.isExtent(addr) {
		return l.framesPerExtent()
	}
	return 1
}
