package umem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Config says what region to open. The zero value of every field but Size is valid.
type Config struct {
	Size       uint64   // bytes of frames and extents together, rounded up to whole pages
	Pages      PageSize // default Huge2M
	FrameSize  uint32   // 2048 or 4096; default 4096
	ExtentSize uint64   // bytes, a power of two up to 1 GiB; default 1 MiB
	Extents    uint64   // number of extents at the end of the region; default none
	Control    uint64   // bytes of control area, rounded up to whole 2 MiB pages; default none
	Node       *int     // NUMA node of all pages; nil: the kernel chooses
	Memory     *Memory  // on huge pages: what Allocate made with this configuration; nil: free pages
}

// Region is the memory that all devices share. Create one with Open.
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

// Open maps a region, populates and pins it, and puts every frame into the pool. If huge pages are
// missing, the error names the command to reserve them. Open waits up to two seconds for pages that
// the kernel is still freeing after an earlier process. It releases Config.Memory, also on an
// error. The caller closes the region.
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

// mapParts maps the data, and the control area if there is one. The control area has its own
// mapping, so that no address in a descriptor, ours or a peer's, can name it.
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

// Close unmaps the region. It refuses, and changes nothing, while a device has the region
// registered or a piece of the control area is taken. A second call does nothing.
func (r *Region) Close() error {
	if err := r.control.inUse(); err != nil && len(r.Registered()) == 0 { // otherwise that error says more
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

// Data returns the memory that devices register: all frames, then all extents. It is valid until Close.
func (r *Region) Data() []byte { return r.data }

// Control returns the memory for rings and tables that no device may reach through a frame address.
// It is nil if the configuration has none, and valid until Close.
func (r *Region) Control() []byte { return r.control.mem }

// Buffers splits Data into pieces of at most 1 GiB, the largest buffer that io_uring registers. No
// frame or extent is in two.
func (r *Region) Buffers() [][]byte {
	var out [][]byte
	for rest := r.data; len(rest) > 0; {
		n := min(len(rest), maxBuffer)
		out = append(out, rest[:n:n])
		rest = rest[n:]
	}
	return out
}

// Bytes returns the memory of a frame's view. It panics if the view leaves the region. The caller
// owns the slice as long as it owns the frame.
func (r *Region) Bytes(f Frame) []byte { return r.At(f.Addr, uint64(f.Len)) }

// At returns n bytes of the region from addr. It panics outside the region.
func (r *Region) At(addr, n uint64) []byte { return r.data[addr : addr+n : addr+n] }

// FrameSize returns the size of a frame in bytes.
func (r *Region) FrameSize() uint32 { return r.frameSize }

// ExtentSize returns the size of an extent in bytes.
func (r *Region) ExtentSize() uint64 { return r.extentSize }

// Frames returns the number of frames, including those of extents.
func (r *Region) Frames() int64 { return r.total() }

// Extents returns the number of extents.
func (r *Region) Extents() uint64 { return r.extents }

// Size returns the length of Data in bytes.
func (r *Region) Size() uint64 { return r.size }

// Pages returns the kind of pages of the region.
func (r *Region) Pages() PageSize { return r.pages }

// Start returns the address of the frame's first byte, and the length of the whole frame or extent
// in bytes.
func (r *Region) Start(f Frame) (start, room uint64) {
	if r.isExtent(f.Addr) {
		return r.extentOf(f.Addr), r.extentSize
	}
	return f.Addr &^ uint64(r.frameSize-1), uint64(r.frameSize)
}
