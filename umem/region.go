package umem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Config says what region to open. The zero value of every field but Size has a
// meaning.
type Config struct {
	Size       uint64   // bytes of frames and extents together, rounded up to whole pages
	Pages      PageSize // default Huge2M
	FrameSize  uint32   // 2048 or 4096; default 4096
	ExtentSize uint64   // bytes, a power of two up to 1 GiB; default 1 MiB
	Extents    uint64   // how many extents end the region; default none
	Control    uint64   // bytes of control area, rounded up to whole 2 MiB pages; default none
	Node       *int     // NUMA node all pages must lie on; nil: wherever the kernel likes
	Memory     *Memory  // on huge pages: what Allocate made with this configuration; nil: free pages
}

// Region is the memory every device shares. Create one with Open.
type Region struct {
	layout
	pages      PageSize
	node       *int
	data       []byte  // frames and extents: what devices register
	control    control // rings and tables: never registered
	side       []Side
	records    []uint16 // holder of each frame, written by its owner
	pool       pool
	books      []*Book   // under pool.mu
	holders    []*Holder // by id, under pool.mu; poolID is nil
	registered registrations
}

// Open maps a region, populates and pins it, and puts every frame into the pool.
// Huge pages that are missing are an error that names the command to reserve
// them; a predecessor's that the kernel is still freeing are waited for, for up to
// two seconds. Memory that was allocated before is released, also with an error. The
// caller closes the region.
func Open(c Config) (*Region, error) {
	if c.Memory != nil {
		defer c.Memory.Release()
	}
	c.setDefaults()
	l, err := newLayout(c)
	if err != nil {
		return nil, fmt.Errorf("open region: %w", err)
	}
	r := &Region{layout: l, pages: c.Pages, node: c.Node, holders: make([]*Holder, 1)}
	if err := r.mapParts(c); err != nil {
		return nil, fmt.Errorf("open region: %w", err)
	}
	r.side = make([]Side, l.size>>l.shift)
	r.records = make([]uint16, l.size>>l.shift)
	r.pool.fill(l)
	return r, nil
}

func (c *Config) setDefaults() {
	if c.FrameSize == 0 {
		c.FrameSize = 4096
	}
	if c.ExtentSize == 0 {
		c.ExtentSize = 1 << 20
	}
}

// mapParts maps the data, and the control area if there is one. That is its own mapping,
// so that no address in a descriptor, ours or a peer's, can name it.
func (r *Region) mapParts(c Config) error {
	places := []*[]byte{&r.data, &r.control.mem}
	for n, p := range c.parts(r.layout) {
		var err error
		if c.Memory != nil && c.Pages != Ordinary {
			*places[n], err = c.Memory.open(n, p)
		} else {
			*places[n], err = p.open()
		}
		if err != nil && n > 0 {
			err = errors.Join(err, unix.Munmap(r.data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close unmaps the region. It refuses, and changes nothing, while a device has
// the region registered, or a piece of the control area is taken. Closing again does
// nothing.
func (r *Region) Close() error {
	if err := r.control.inUse(); err != nil && len(r.Registered()) == 0 { // else that says more
		return err
	}
	if done, err := r.registered.close(); done || err != nil {
		return err
	}
	err := unix.Munmap(r.data)
	if r.control.mem != nil {
		err = errors.Join(err, unix.Munmap(r.control.mem))
	}
	r.data, r.control.mem = nil, nil
	if err != nil {
		return fmt.Errorf("close region: %w", err)
	}
	return nil
}

// Data is the memory devices register: all frames, then all extents. It is valid
// until Close.
func (r *Region) Data() []byte { return r.data }

// Control is the memory for rings and tables that no device may reach through a
// frame address, nil if none was asked for. It is valid until Close.
func (r *Region) Control() []byte { return r.control.mem }

// Buffers cuts Data into pieces of at most 1 GiB, the most io_uring registers as
// one buffer. No frame or extent lies in two.
func (r *Region) Buffers() [][]byte {
	var out [][]byte
	for rest := r.data; len(rest) > 0; {
		n := min(len(rest), maxBuffer)
		out = append(out, rest[:n:n])
		rest = rest[n:]
	}
	return out
}

// Bytes is the memory a frame views. It panics when the view leaves the region.
// The slice is the caller's for as long as the frame is.
func (r *Region) Bytes(f Frame) []byte { return r.At(f.Addr, uint64(f.Len)) }

// At is n bytes of the region from addr. It panics outside the region.
func (r *Region) At(addr, n uint64) []byte { return r.data[addr : addr+n : addr+n] }

// FrameSize is the size of a frame in bytes.
func (r *Region) FrameSize() uint32 { return r.frameSize }

// ExtentSize is the size of an extent in bytes.
func (r *Region) ExtentSize() uint64 { return r.extentSize }

// Frames returns the number of frames, including those of extents.
func (r *Region) Frames() int64 { return r.total() }

// Extents is the number of extents.
func (r *Region) Extents() uint64 { return r.extents }

// Size is the length of Data in bytes.
func (r *Region) Size() uint64 { return r.size }

// Pages is what backs the region.
func (r *Region) Pages() PageSize { return r.pages }

// Start is the address of the frame's first byte, and Room how many bytes the
// frame or extent has in all.
func (r *Region) Start(f Frame) (start, room uint64) {
	if r.isExtent(f.Addr) {
		return r.extentOf(f.Addr), r.extentSize
	}
	return f.Addr &^ uint64(r.frameSize-1), uint64(r.frameSize)
}
