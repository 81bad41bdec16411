package replay

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

// reader reads captures into extents, one after the other, and finds their packets there. Each
// extent holds a chunk of a file. A chunk is on loan to the port that sends from it. The reader
// reuses an extent when none of its packets is needed any longer. It belongs to the worker's
// thread; any goroutine may read the counters.
type reader struct {
	region      *umem.Region
	queue       *nvme.Queue
	port        *xdp.Port
	captures    []capture
	loopsToRead int // loops to read after this one; negative: endless
	loopsToSend int // loops to send after this one; negative: endless

	extents    []umem.Frame
	chunkOf    []int32 // by extent of the region: index in extents, or -1
	base       uint64  // address of the region's first extent
	chunks     []chunk // by extent
	extentSize int64   // in bytes

	// Chunks are numbered through all files and loops. Chunk n is in extent n modulo len(extents).
	released, requested uint64 // chunks before these are released, or read or being read

	reading struct{ capture, offset int64 } // the next chunk to read
	readAll bool                            // there is nothing left to read

	parser       capfile.Parser
	current      int    // capture that the parser reads
	first        uint64 // number of its first chunk
	begun        bool   // the parser has begun the capture
	newRecording bool   // the next packet is the first of a recording
	sentAll      bool   // there are no more packets
	pending      capfile.Packet
	found        bool // pending is the next packet; its bytes may not be read yet
	scratch      [capfile.MaxWant]byte

	played  counter.Counter // captures that were sent to their end
	offset  atomic.Int64    // in the current capture, for the status
	capture atomic.Int32    // index of the current capture, for the status
}

// chunk is a part of a file in an extent.
type chunk struct {
	read     bool   // it is read, and on loan to the port
	inFlight uint32 // descriptors in it that belong to the device
}

// minExtents is the number of extents that captures need. The longest block of a capture spans
// three of the smallest.
const minExtents = 4

// begin takes ownership of extents, at least minExtents.
func (r *reader) begin(extents []umem.Frame) {
	r.extents, r.chunks, r.extentSize = extents, make([]chunk, len(extents)), int64(r.region.ExtentSize())
	r.base = r.region.Size() - r.region.Extents()*uint64(r.extentSize)
	r.base &^= uint64(r.extentSize) - 1
	r.chunkOf = make([]int32, r.region.Extents()+1)
	for i := range r.chunkOf {
		r.chunkOf[i] = -1
	}
	for i := range extents {
		r.chunkOf[r.index(extents[i].Addr)] = int32(i)
	}
}

// index returns the number of a region's extent.
func (r *reader) index(addr uint64) uint64 {
	return (addr - r.base) >> (bits.TrailingZeros64(uint64(r.extentSize)) & 63)
}

// extentOf returns the index in extents of an address, or a negative number.
func (r *reader) extentOf(addr uint64) int32 {
	if addr < r.base {
		return -1
	}
	return r.chunkOf[r.index(addr)]
}

// fetch requests reads into free extents.
func (r *reader) fetch() {
	for !r.readAll && r.requested-r.released < uint64(len(r.chunks)) {
		c := &r.captures[r.reading.capture]
		n := min(r.extentSize, c.size-r.reading.offset)
		if n > 0 && !r.request(c, r.reading.offset, n) {
			return
		}
		if r.reading.offset += n; r.reading.offset == c.size {
			r.reading.offset = 0
			r.nextCapture()
		}
	}
}

// nextCapture continues reading with the next capture, or the next loop.
func (r *reader) nextCapture() {
	if r.reading.capture++; int(r.reading.capture) < len(r.captures) {
		return
	}
	r.reading.capture = 0
	if r.loopsToRead == 0 {
		r.readAll = true
	} else if r.loopsToRead > 0 {
		r.loopsToRead--
	}
}

// request reads n bytes of a capture into the next extent.
func (r *reader) request(c *capture, offset, n int64) bool {
	slot := r.requested % uint64(len(r.chunks))
	whole := uint32(c.target.Alignment().Offset)
	f := &r.extents[slot]
	*f = umem.Frame{Addr: f.Addr, Len: (uint32(n) + whole - 1) &^ (whole - 1)}
	side := r.region.Side(*f)
	side.Target, side.Block = c.number, uint64(offset)
	if r.queue.Supply(r.extents[slot:slot+1]) == 0 {
		return false
	}
	r.chunks[slot] = chunk{}
	r.requested++
	return true
}

// reap takes back the extents that the disk has filled.
func (r *reader) reap() error {
	var got [16]umem.Frame
	for {
		n := r.queue.Recv(got[:])
		for i := range got[:n] {
			if err := r.checkRead(got[i]); err != nil {
				return err
			}
			r.port.Lend(got[i : i+1])
			r.chunks[r.extentOf(got[i].Addr)].read = true
		}
		if n < len(got) {
			return nil
		}
	}
}

// checkRead returns the error of a read. The end of a file inside a block is not an error, unless
// the file was truncated.
func (r *reader) checkRead(f umem.Frame) error {
	err := f.Err()
	if err == nil {
		return nil
	}
	for i := range r.captures {
		if c := &r.captures[i]; c.number == r.region.Side(f).Target {
			if err == error(unix.ENODATA) && c.whole() {
				return nil
			}
			return fmt.Errorf("read capture %s at offset %d: %w", c.name, r.region.Side(f).Block, err)
		}
	}
	return err
}

// whole reports whether a file still has its original length.
func (c *capture) whole() bool {
	var st unix.Stat_t
	return unix.Fstat(c.target.FD(), &st) == nil && st.Size >= c.size
}

// next returns the next packet once its bytes are in memory. It returns the same packet until pass
// is called.
func (r *reader) next() (*capfile.Packet, error) {
	for !r.found {
		on, err := r.parse()
		if err != nil || !on {
			return nil, err
		}
	}
	if !r.isRead(r.pending.Offset, int64(r.pending.Len)) {
		return nil, nil
	}
	return &r.pending, nil
}

// pass releases the packet that next returned.
func (r *reader) pass() { r.found = false }

// parse makes the parser find the next packet, and reports whether it did.
func (r *reader) parse() (bool, error) {
	if r.sentAll {
		return false, nil
	}
	c := &r.captures[r.current]
	if !r.begun {
		r.parser.Growing, r.parser.Extra, r.begun = c.growing, c.extra, true
		r.parser.Begin(c.size)
	}
	at, n := r.parser.Want()
	if n == 0 {
		if c.cut != nil {
			return false, fmt.Errorf("read capture %s: %w", c.name, c.cut)
		}
		r.endCapture(c)
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

// endCapture continues parsing with the next capture.
func (r *reader) endCapture(c *capture) {
	r.played.Add(1)
	r.first += uint64((c.size + r.extentSize - 1) / r.extentSize)
	r.begun = false
	if r.current++; r.current < len(r.captures) {
		r.newRecording = r.newRecording || !r.captures[r.current].continues
		return
	}
	r.current, r.newRecording = 0, true
	if r.loopsToSend == 0 {
		r.sentAll = true
	} else if r.loopsToSend > 0 {
		r.loopsToSend--
	}
}

// bytes returns n bytes at an offset of a capture, or nil beyond its end. ok is false if they are
// not read yet.
func (r *reader) bytes(c *capture, at int64, n int) (b []byte, ok bool) {
	if at+int64(n) > c.size {
		return nil, true
	}
	if !r.isRead(at, int64(n)) {
		return nil, false
	}
	addr, here := r.address(at)
	if int64(n) <= here {
		return r.region.At(addr, uint64(n)), true
	}
	rest, _ := r.address(at + here)
	copy(r.scratch[copy(r.scratch[:], r.region.At(addr, uint64(here))):n], r.region.At(rest, uint64(int64(n)-here)))
	return r.scratch[:n], true
}

// isRead reports whether n bytes at an offset of the current capture are read.
func (r *reader) isRead(at, n int64) bool {
	if n == 0 {
		return true
	}
	last := r.first + uint64((at+n-1)/r.extentSize)
	for number := r.first + uint64(at/r.extentSize); number <= last; number++ {
		if number >= r.requested || !r.chunk(number).read {
			return false
		}
	}
	return true
}

func (r *reader) chunk(number uint64) *chunk { return &r.chunks[number%uint64(len(r.chunks))] }

// address returns the memory address of an offset of the current capture, and the number of
// contiguous bytes there.
func (r *reader) address(at int64) (addr uint64, here int64) {
	number, in := r.first+uint64(at/r.extentSize), at%r.extentSize
	return r.extents[number%uint64(len(r.extents))].Addr + uint64(in), r.extentSize - in
}

// descriptors appends descriptors for the last n bytes of a packet.
func (r *reader) descriptors(dst []umem.Frame, at, n int64) []umem.Frame {
	for n > 0 {
		addr, here := r.address(at)
		part := min(n, here, maxDescriptor)
		dst = append(dst, umem.Frame{Addr: addr, Len: uint32(part), Options: umem.More})
		at, n = at+part, n-part
	}
	dst[len(dst)-1].Options = 0
	return dst
}

// maxDescriptor is the largest length of a descriptor.
const maxDescriptor = 4096

// sent records descriptors that the device has taken.
func (r *reader) sent(parts []umem.Frame) {
	for i := range parts {
		if slot := r.extentOf(parts[i].Addr); slot >= 0 {
			r.chunks[slot].inFlight++
		}
	}
}

// done records that the device is done with a descriptor.
func (r *reader) done(addr uint64) {
	if slot := r.extentOf(addr); slot >= 0 && r.chunks[slot].inFlight > 0 {
		r.chunks[slot].inFlight--
	}
}

// release takes back loans of chunks from which nothing is needed any longer.
func (r *reader) release() {
	at := r.firstWanted()
	for r.released < r.requested && r.released < at {
		p := r.chunk(r.released)
		if !p.read || p.inFlight > 0 {
			return
		}
		slot := r.released % uint64(len(r.extents))
		r.port.Return(r.extents[slot : slot+1])
		p.read = false
		r.released++
	}
}

// firstWanted returns the number of the first chunk with packets that are not found yet.
func (r *reader) firstWanted() uint64 {
	if r.sentAll {
		return r.requested
	}
	if !r.begun {
		return r.first
	}
	at := r.parser.Keep()
	if r.found {
		at = min(at, r.pending.Offset)
	}
	if r.offset.Load() != at {
		r.offset.Store(at)
		r.capture.Store(int32(r.current))
	}
	return r.first + uint64(at/r.extentSize)
}
