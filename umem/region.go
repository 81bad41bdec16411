package umem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Config says what region to open. The zero value of every field but Size is valid.
type Config struct {
	Size       uint64        // bytes of frames and extents together, rounded up to whole pages
	Pages      PageSize      // default Auto
	FrameSize  uint32        // 2048 or 4096; default 4096
	ExtentSize uint64        // bytes, a power of two up to 1 GiB; default 1 MiB
	Extents    uint64        // number of extents at the end of the region; default none
	Control    uint64        // bytes of control area, rounded up to whole 2 MiB pages; default none
	Device     string        // path of a device-DAX device that Size bytes are taken of, instead of huge pages; default none
	Node       *int          // NUMA node of all pages; nil: the kernel chooses
	Slices     []SliceConfig // memory of programs that attach, in addition to Size; default none
	Memory     *Memory       // on huge pages: what Allocate made with this configuration; nil: free pages
}

// Region is the memory that all devices share. Create one with Open.
type Region struct {
	layout
	pages      PageSize
	why        error    // ordinary pages, if there was a choice
	device     *os.File // of the data; nil: none
	partPages  PageSize // of what attached programs read
	node       *int
	mapped     addressRange
	data       []byte  // frames, extents and slices: what devices register
	control    control // rings and tables: never registered
	slices     []*Slice
	side       []Side
	records    []uint16 // holder of each frame, written by its owner
	pool       pool
	books      []*Book   // under pool.mu
	holders    []*Holder // by id, under pool.mu; poolID is nil
	registered registrations
	contents   string
}

// Open maps a region, populates and pins it, and puts every frame into the pool. If huge pages are
// missing, and not Auto is the kind, the error names the command to reserve them. Open waits up to two seconds for pages that
// the kernel is still freeing after an earlier process. It releases Config.Memory, also on an
// error. The caller closes the region.
func Open(c Config) (*Region, error) {
	defer func() { _ = c.Memory.Release() }()
	c.setDefaults()
	l, err := newLayout(c)
	if err != nil {
		return nil, fmt.Errorf("open region: %w", err)
	}
	if err := c.checkDevice(); err != nil {
		return nil, err
	}
	why, err := c.choosePages()
	if err != nil {
		return nil, fmt.Errorf("open region: %w", err)
	}
	if c.Memory == nil {
		if err := c.checkGroup(); err != nil {
			return nil, fmt.Errorf("open region: %w", err)
		}
	}
	r := &Region{layout: l, why: why, pages: c.Pages, partPages: c.partPages(), node: c.Node, holders: make([]*Holder, 1)}
	if err := r.mapParts(c); err != nil {
		return nil, fmt.Errorf("open region: %w", err)
	}
	r.side = make([]Side, l.whole>>l.shift)
	r.records = make([]uint16, l.whole>>l.shift)
	r.pool.fill(l)
	r.contents = r.nameContents()
	return r, nil
}

// nameContents returns the text of Contents.
func (r *Region) nameContents() string {
	var st unix.Stat_t
	if r.device == nil || unix.Fstat(int(r.device.Fd()), &st) != nil {
		return "memory " + rand.Text()
	}
	return fmt.Sprintf("device %d:%d, %d bytes, %d frames of %d, %d extents of %d from %d", unix.Major(st.Rdev), unix.Minor(st.Rdev), r.size, r.frames, r.frameSize, r.extents, r.extentSize, r.extentBase)
}

func (c *Config) setDefaults() {
	if c.FrameSize == 0 {
		c.FrameSize = 4096
	}
	if c.ExtentSize == 0 {
		c.ExtentSize = 1 << 20
	}
}

// mapParts maps the data, the control area if there is one, and the slices. The control area has its own
// mapping, so that no address in a descriptor, ours or a peer's, can name it.
func (r *Region) mapParts(c Config) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, r.unmap())
		}
	}()
	all := c.parts(r.layout)
	data, control, slices := all[0], all[1], all[2:]
	if r.mapped, err = reserveRange(r.whole, c.Pages.Bytes()); err != nil {
		return err
	}
	memory := &partFiles{of: c.Memory}
	var keep **os.File // a device belongs to the region as long as it is open
	if c.Device != "" {
		keep = &r.device
	}
	if err := memory.mapPart(data, r.mapped, 0, keep); err != nil {
		return err
	}
	if control.size > 0 {
		if r.control.mapped, err = reserveRange(control.size, control.pages.Bytes()); err != nil {
			return err
		}
		if err := memory.mapPart(control, r.control.mapped, 0, nil); err != nil {
			return err
		}
		r.control.mem = r.control.mapped.bytes()
	}
	r.data = r.mapped.bytes()
	return r.mapSlices(c, slices, memory)
}

// mapSlices maps the parts of slices, and keeps and seals their memfds.
func (r *Region) mapSlices(c Config, parts []part, memory *partFiles) error {
	at := 0
	next := func(readOnly bool) (*Part, error) {
		where := r.parts[at]
		p := &Part{base: where.base, size: where.size, number: at}
		at++
		if err := memory.mapPart(parts[p.number], r.mapped, p.base, &p.file); err != nil {
			return nil, err
		}
		return p, p.protect(readOnly)
	}
	for _, one := range c.Slices {
		s := &Slice{Name: one.Name}
		r.slices = append(r.slices, s)
		var err error
		if one.In > 0 {
			if s.In, err = next(true); err != nil {
				return err
			}
		}
		if one.Out > 0 {
			if s.Out, err = next(false); err != nil {
				return err
			}
		}
	}
	return nil
}

// partFiles are the memfds of a region's parts: those that were allocated before, and new ones.
type partFiles struct {
	of   *Memory // nil: all are new
	used int     // of its files
}

// mapPart maps the next part into a range. If keep is not nil, it gets the memfd.
func (m *partFiles) mapPart(p part, into addressRange, offset uint64, keep **os.File) (err error) {
	var f *os.File
	if m.of != nil && p.pages != Ordinary {
		f, err = m.of.file(m.used, p)
		m.used++
	} else {
		f, err = p.file()
	}
	if err != nil {
		return err
	}
	if keep != nil {
		*keep = f
	} else {
		defer f.Close()
	}
	return p.mapInto(into, offset, f)
}

// unmap gives back all memory.
func (r *Region) unmap() error {
	var errs []error
	for _, s := range r.slices {
		for _, p := range []*Part{s.In, s.Out} {
			if p != nil && p.file != nil {
				errs = append(errs, p.file.Close())
			}
		}
	}
	for _, a := range []addressRange{r.mapped, r.control.mapped} {
		if a.length > 0 {
			errs = append(errs, a.unmap())
		}
	}
	if r.device != nil { // once nothing of it is mapped any more
		errs = append(errs, r.device.Close())
	}
	r.slices, r.device, r.data, r.control.mem, r.mapped, r.control.mapped = nil, nil, nil, nil, addressRange{}, addressRange{}
	return errors.Join(errs...)
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
	if err := r.unmap(); err != nil {
		return fmt.Errorf("close region: %w", err)
	}
	return nil
}

// Data returns the memory that devices register: all frames, all extents, then all slices. It is valid until
// Close.
func (r *Region) Data() []byte { return r.data }

// Contents names the memory and its division. An earlier region since the machine's start, also one of another
// process, had the same name if its bytes can still be where they were: it was on the same device-DAX device. Two
// regions on huge pages never have the same name.
func (r *Region) Contents() string { return r.contents }

// Control returns the memory for rings and tables that no device may reach through a frame address.
// It is nil if the configuration has none, and valid until Close.
func (r *Region) Control() []byte { return r.control.mem }

// Buffers splits Data into pieces for io_uring, which registers at most 1 GiB at once and, before Linux 6.5,
// only one file. No frame or extent is in two. All pieces of the frames and extents but the last have 1 GiB.
func (r *Region) Buffers() [][]byte {
	out := pieces(nil, r.data[:r.size])
	for _, p := range r.parts {
		out = pieces(out, r.data[p.base:p.base+p.size])
	}
	return out
}

func pieces(out [][]byte, rest []byte) [][]byte {
	for len(rest) > 0 {
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

// Frames returns the number of frames, including those of extents and slices.
func (r *Region) Frames() int64 { return r.total() }

// Extents returns the number of extents.
func (r *Region) Extents() uint64 { return r.extents }

// ExtentRange returns the offset of the first extent in the region, and the bytes of all extents. Frames lie
// before them, and those of slices behind them.
func (r *Region) ExtentRange() (base, size uint64) { return r.extentBase, r.inExtents }

// Size returns the length of Data in bytes.
func (r *Region) Size() uint64 { return r.whole }

// Pages returns the kind of pages of the region.
func (r *Region) Pages() PageSize { return r.pages }

// WhyOrdinary says why a region of Auto is on ordinary pages; nil: it is on huge pages, or there was no choice.
func (r *Region) WhyOrdinary() error { return r.why }

// Warn logs what it costs that a region of Auto is on ordinary pages.
func (r *Region) Warn(log *slog.Logger) {
	if r.why != nil {
		log.Warn("there are no huge pages for the region: it is on ordinary ones, and every device is slower", "err", r.why)
	}
}

// Start returns the address of the frame's first byte, and the length of the whole frame or extent
// in bytes.
func (r *Region) Start(f Frame) (start, room uint64) {
	if r.isExtent(f.Addr) {
		return r.extentOf(f.Addr), r.extentSize
	}
	return f.Addr &^ uint64(r.frameSize-1), uint64(r.frameSize)
}

// Side has the data of a frame that is not in its bytes. There is one Side per frame, in memory
// beside the region that no device has registered. An extent uses the Side of its first frame.
// Only the owner of the frame may read or write it.
type Side struct {
	Block  uint64 // byte offset in the target, for block I/O
	Stamp  uint64 // time of arrival, nanoseconds of Clock
	Token  uint64 // for the flow, which gets it back with the frame
	Target uint32 // which file or device of a queue, for block I/O
	Queue  uint16 // which queue the frame came from
	Clock  Clock  // the clock of Stamp
}

// Clock is the source of an arrival time.
type Clock uint16

const (
	// SystemClock is the machine's clock: nanoseconds since 1970, UTC.
	SystemClock Clock = iota
	// CardClock is the network card's own clock. Its epoch depends on the program that set it.
	CardClock
)

// Side returns the entry of the frame or extent that contains f.Addr. The pointer is valid as long
// as the caller owns the frame.
func (r *Region) Side(f Frame) *Side { return &r.side[r.record(f.Addr)] }

// PacketHeadroom is the room that the kernel keeps free before every received packet, in front of a
// shape's own headroom: XDP_PACKET_HEADROOM in include/uapi/linux/bpf.h.
const PacketHeadroom = 256

// Shape is how packets land in frames. It belongs to one registration with AF_XDP. Several shapes
// may be registered over the same region.
type Shape struct {
	Headroom    uint32 // bytes kept free beyond PacketHeadroom
	MultiBuffer bool   // packets longer than a frame continue in further frames
	Unaligned   bool   // sent packets may cross the borders of frames
}

// Offset returns the offset in its frame where a packet's first byte lands. It has no meaning for a
// shape that does not pass Check.
func (s Shape) Offset() uint32 { return PacketHeadroom + s.Headroom }

// Capacity returns how many bytes of a packet one frame of frameSize bytes holds.
func (s Shape) Capacity(frameSize uint32) uint32 {
	if frameSize < PacketHeadroom || s.Headroom > frameSize-PacketHeadroom {
		return 0
	}
	return frameSize - s.Offset()
}

// Check returns an error if the headroom leaves less than an Ethernet frame of the smallest MTU
// that IPv4 hosts must accept (RFC 791: 576) in frames of this size.
func (s Shape) Check(frameSize uint32) error {
	const least = 576 + 14
	if c := s.Capacity(frameSize); c < least {
		return fmt.Errorf("shape with headroom %d leaves %d bytes of a %d-byte frame for a packet, fewer than %d: lower the headroom or use larger frames",
			s.Headroom, c, frameSize, least)
	}
	return nil
}

// registrations are the devices that have the region's memory registered.
type registrations struct {
	mu     sync.Mutex
	live   map[*Registration]string
	closed bool
}

// Registration is a device's hold on the region's memory. Take it after the device has accepted the
// memory, and release it after the device has released the memory.
type Registration struct{ set *registrations }

// Register records that device has the region's memory registered. The name is for people ("AF_XDP
// UMEM of eth0"). Any goroutine may call it.
func (r *Region) Register(device string) *Registration {
	g := &Registration{set: &r.registered}
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	if g.set.live == nil {
		g.set.live = make(map[*Registration]string)
	}
	g.set.live[g] = device
	return g
}

// Release records that the device has released the memory. A second call does nothing, as does
// releasing a nil Registration.
func (g *Registration) Release() {
	if g == nil {
		return
	}
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	delete(g.set.live, g)
}

// Registered lists the devices that have the region registered, sorted.
func (r *Region) Registered() []string {
	r.registered.mu.Lock()
	defer r.registered.mu.Unlock()
	return r.registered.names()
}

// names returns the devices, sorted. The caller holds the lock.
func (s *registrations) names() []string {
	return slices.Sorted(maps.Values(s.live))
}

// close marks the region as closed unless a device has it registered. already says whether it was
// closed before.
func (s *registrations) close() (already bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if names := s.names(); len(names) > 0 {
		return false, fmt.Errorf("close region: still registered with %s; close those first", strings.Join(names, ", "))
	}
	already, s.closed = s.closed, true
	return already, nil
}
