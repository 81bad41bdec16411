package flows

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// reel reads captures, one after the other, into extents, and finds their packets where they then lie. Each extent has a piece
// of a file, in order; a piece is lent to the port that sends from it, and its extent read into again once nothing of it is
// wanted any more. It belongs to the worker's thread; the counters may be read from anywhere.
type reel struct {
	region *umem.Region
	queue  *nvme.Queue
	port   *xdp.Port
	all    []capture
	loops  int // that are to be read after this one; negative: no end
	left   int // that packets are looked for in after this one

	extents []umem.Frame
	slots   []int32 // of each extent of the region, which of those it is
	base    uint64  // address of the region's first extent
	spans   []span  // of each extent
	size    int64   // bytes of an extent

	// Pieces are numbered through all files and loops; of one with number n the extent is n modulo their number.
	freed, asked uint64 // those in front are done with; those in front are read or being read

	reading struct{ capture, offset int64 } // what is read next
	ended   bool                            // there is no more to be read

	parser  capfile.Parser
	current int    // the capture that packets are looked for in
	first   uint64 // the number of its first piece
	begun   bool   // the parser has it
	fresh   bool   // the next packet is of another recording than the last one
	over    bool   // there are no more packets
	pending capfile.Packet
	found   bool // pending is the next packet, which may not have been read yet
	scratch [capfile.MaxWant]byte

	played counter.Counter // captures that were sent to their ends, each time
	place  atomic.Int64    // in the current one
	which  atomic.Int32    // it is
}

// span is a part of a file that is in an extent.
type span struct {
	here bool   // it was read, and is lent to the port
	due  uint32 // descriptors of packets in it that the device has
}

// leastReel is how many extents captures are read into at least: the longest block of a capture lies in three of the smallest.
const leastReel = 4

// begin takes over extents, of which there are leastReel.
func (r *reel) begin(extents []umem.Frame) {
	r.extents, r.spans, r.size = extents, make([]span, len(extents)), int64(r.region.ExtentSize())
	r.base = r.region.Size() - r.region.Extents()*uint64(r.size)
	r.base &^= uint64(r.size) - 1
	r.slots = make([]int32, r.region.Extents()+1)
	for i := range r.slots {
		r.slots[i] = -1
	}
	for i := range extents {
		r.slots[r.index(extents[i].Addr)] = int32(i)
	}
}

// index numbers the region's extents.
func (r *reel) index(addr uint64) uint64 {
	return (addr - r.base) >> (bits.TrailingZeros64(uint64(r.size)) & 63)
}

// slot is the number of the extent that has an address; negative: none of these.
func (r *reel) slot(addr uint64) int32 {
	if addr < r.base {
		return -1
	}
	return r.slots[r.index(addr)]
}

// fetch has extents read into that are free.
func (r *reel) fetch() {
	for !r.ended && r.asked-r.freed < uint64(len(r.spans)) {
		c := &r.all[r.reading.capture]
		n := min(r.size, c.size-r.reading.offset)
		if n > 0 && !r.ask(c, r.reading.offset, n) {
			return
		}
		if r.reading.offset += n; r.reading.offset == c.size {
			r.reading.offset = 0
			r.another()
		}
	}
}

// another goes on with the next capture, or loop.
func (r *reel) another() {
	if r.reading.capture++; int(r.reading.capture) < len(r.all) {
		return
	}
	r.reading.capture = 0
	if r.loops == 0 {
		r.ended = true
	} else if r.loops > 0 {
		r.loops--
	}
}

// ask reads n bytes of a capture into the next extent.
func (r *reel) ask(c *capture, offset, n int64) bool {
	slot := r.asked % uint64(len(r.spans))
	whole := uint32(c.target.Alignment().Offset)
	f := &r.extents[slot]
	*f = umem.Frame{Addr: f.Addr, Len: (uint32(n) + whole - 1) &^ (whole - 1)}
	side := r.region.Side(*f)
	side.Target, side.Block = c.number, uint64(offset)
	if r.queue.Supply(r.extents[slot:slot+1]) == 0 {
		return false
	}
	r.spans[slot] = span{}
	r.asked++
	return true
}

// settle takes what was read.
func (r *reel) settle() error {
	var got [16]umem.Frame
	for {
		n := r.queue.Recv(got[:])
		for i := range got[:n] {
			if err := r.check(got[i]); err != nil {
				return err
			}
			r.port.Lend(got[i : i+1])
			r.spans[r.slot(got[i].Addr)].here = true
		}
		if n < len(got) {
			return nil
		}
	}
}

// check says why an extent was not filled. The end of a file in the middle of a block is none, unless the file was cut.
func (r *reel) check(f umem.Frame) error {
	err := f.Err()
	if err == nil {
		return nil
	}
	for i := range r.all {
		if c := &r.all[i]; c.number == r.region.Side(f).Target {
			if err == error(unix.ENODATA) && c.whole() {
				return nil
			}
			return fmt.Errorf("read capture %s at offset %d: %w", c.name, r.region.Side(f).Block, err)
		}
	}
	return err
}

// whole reports whether a file still is as long as it was.
func (c *capture) whole() bool {
	var st unix.Stat_t
	return unix.Fstat(c.target.FD(), &st) == nil && st.Size >= c.size
}

// next is the next packet, once its bytes are in memory. It stays that until pass.
func (r *reel) next() (*capfile.Packet, error) {
	for !r.found {
		on, err := r.step()
		if err != nil || !on {
			return nil, err
		}
	}
	if !r.has(r.pending.Offset, int64(r.pending.Len)) {
		return nil, nil
	}
	return &r.pending, nil
}

// pass is done with the packet that next gave.
func (r *reel) pass() { r.found = false }

// step has the parser look on, and reports whether it could.
func (r *reel) step() (bool, error) {
	if r.over {
		return false, nil
	}
	c := &r.all[r.current]
	if !r.begun {
		r.parser.Growing, r.parser.Extra, r.begun = c.growing, c.extra, true
		r.parser.Begin(c.size)
	}
	at, n := r.parser.Want()
	if n == 0 {
		if c.cut != nil {
			return false, fmt.Errorf("read capture %s: %w", c.name, c.cut)
		}
		r.turn(c)
		return true, nil
	}
	b, ok := r.bytes(c, at, n)
	if !ok {
		return false, nil
	}
	var err error
	if r.pending, r.found, err = r.parser.Give(b); err != nil {
		if c.cut != nil {
			err = c.cut
		}
		return false, fmt.Errorf("read capture %s: %w", c.name, err)
	}
	return true, nil
}

// turn goes on with the next capture.
func (r *reel) turn(c *capture) {
	r.played.Add(1)
	r.first += uint64((c.size + r.size - 1) / r.size)
	r.begun = false
	if r.current++; r.current < len(r.all) {
		r.fresh = r.fresh || !r.all[r.current].follows
		return
	}
	r.current, r.fresh = 0, true
	if r.left == 0 {
		r.over = true
	} else if r.left > 0 {
		r.left--
	}
}

// bytes are n bytes at a place of a capture, or nothing where it has not so many; ok is false while they have not been read.
func (r *reel) bytes(c *capture, at int64, n int) (b []byte, ok bool) {
	if at+int64(n) > c.size {
		return nil, true
	}
	if !r.has(at, int64(n)) {
		return nil, false
	}
	addr, here := r.where(at)
	if int64(n) <= here {
		return r.region.At(addr, uint64(n)), true
	}
	rest, _ := r.where(at + here)
	copy(r.scratch[copy(r.scratch[:], r.region.At(addr, uint64(here))):n], r.region.At(rest, uint64(int64(n)-here)))
	return r.scratch[:n], true
}

// has reports whether n bytes at a place of the current capture have been read.
func (r *reel) has(at, n int64) bool {
	if n == 0 {
		return true
	}
	last := r.first + uint64((at+n-1)/r.size)
	for number := r.first + uint64(at/r.size); number <= last; number++ {
		if number >= r.asked || !r.span(number).here {
			return false
		}
	}
	return true
}

func (r *reel) span(number uint64) *span { return &r.spans[number%uint64(len(r.spans))] }

// where is the address of a place of the current capture, and how many bytes follow there.
func (r *reel) where(at int64) (addr uint64, here int64) {
	number, in := r.first+uint64(at/r.size), at%r.size
	return r.extents[number%uint64(len(r.extents))].Addr + uint64(in), r.size - in
}

// parts appends the descriptors of n bytes of a packet that was read, up to its end.
func (r *reel) parts(dst []umem.Frame, at, n int64) []umem.Frame {
	for n > 0 {
		addr, here := r.where(at)
		part := min(n, here, longestPart)
		dst = append(dst, umem.Frame{Addr: addr, Len: uint32(part), Options: umem.More})
		at, n = at+part, n-part
	}
	dst[len(dst)-1].Options = 0
	return dst
}

// longestPart is the most bytes of one descriptor.
const longestPart = 4096

// sent notes that the device has descriptors.
func (r *reel) sent(parts []umem.Frame) {
	for i := range parts {
		if slot := r.slot(parts[i].Addr); slot >= 0 {
			r.spans[slot].due++
		}
	}
}

// reaped notes that it is done with one.
func (r *reel) reaped(addr uint64) {
	if slot := r.slot(addr); slot >= 0 && r.spans[slot].due > 0 {
		r.spans[slot].due--
	}
}

// release takes extents back of which nothing is wanted any more.
func (r *reel) release() {
	at := r.wanted()
	for r.freed < r.asked && r.freed < at {
		p := r.span(r.freed)
		if !p.here || p.due > 0 {
			return
		}
		slot := r.freed % uint64(len(r.extents))
		r.port.Return(r.extents[slot : slot+1])
		p.here = false
		r.freed++
	}
}

// wanted is the number of the first piece that packets are still looked for in.
func (r *reel) wanted() uint64 {
	if r.over {
		return r.asked
	}
	if !r.begun {
		return r.first
	}
	at := r.parser.Keep()
	if r.found {
		at = min(at, r.pending.Offset)
	}
	if r.place.Load() != at {
		r.place.Store(at)
		r.which.Store(int32(r.current))
	}
	return r.first + uint64(at/r.size)
}
