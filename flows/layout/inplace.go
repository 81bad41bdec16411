package layout

import (
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// InPlaceAlign is the length in bytes to which the slot layout pads every record. It is the least
// alignment for direct I/O on the disks for this layout.
const InPlaceAlign = 512

// InPlaceHeadroom places a packet so that the block header before it begins at a multiple of
// InPlaceAlign: 256 + 284 = 512 + 28.
const InPlaceHeadroom = InPlaceAlign + pcapng.PacketHeaderLen - umem.PacketHeadroom

// InPlace makes a record of each packet where it landed. It puts the block header before the packet
// and padding after it, and the disk writes the frames by one gather write. It copies only packets
// of several frames, into other frames.
type InPlace struct {
	region  *umem.Region
	limit   uint64 // bytes of a batch
	enough  uint64 // bytes of a batch that has more than one packet
	spare   *umem.FreeList
	landed  *umem.FreeList // Free puts extents of messages here; nil: with the frames
	copied  *Copies
	numbers Numbering
	snap    *SnapLen

	chain   []umem.Frame // the head's frame, then records; capacity is the longest write
	notes   uint32       // bytes of noted blocks after the mark in the head
	length  uint64
	packets uint32
	bytes   uint64
	latest  uint64                 // time of the newest packet
	tail    [2 * InPlaceAlign]byte // of a record that needs a spare frame
}

// NewInPlace returns a layout whose batches have at most frames frames. A batch with more than one
// packet has at most enough bytes.
func NewInPlace(c Config, frames int, enough uint64) *InPlace {
	return &InPlace{region: c.Region, limit: c.Limit, enough: enough, spare: c.Free, copied: c.Copies, snap: c.SnapLen, numbers: c.Numbers, chain: make([]umem.Frame, 0, frames)}
}

// ReturnExtents makes Free put extents into a separate list.
func (s *InPlace) ReturnExtents(to *umem.FreeList) { s.landed = to }

// open ensures that the batch has its head.
func (s *InPlace) open() bool {
	if len(s.chain) > 0 {
		return true
	}
	if !s.spare.Pop(s.chain[:1]) {
		return false
	}
	s.chain = s.chain[:1]
	s.setHead(0)
	return true
}

// setHead sets the length of the head for its mark and n bytes of blocks.
func (s *InPlace) setHead(n uint32) {
	head := &s.chain[0]
	start, _ := s.region.Start(*head)
	s.notes = n
	*head = umem.Frame{Addr: start, Len: (pcapng.MinMarkLen + n + InPlaceAlign - 1) &^ (InPlaceAlign - 1), Options: umem.More}
	s.length = uint64(head.Len)
}

// Note implements [Layout].
func (s *InPlace) Note(blocks []byte) bool {
	n := uint32(len(blocks))
	if !s.open() || pcapng.MinMarkLen+n > s.region.FrameSize() {
		return false
	}
	s.setHead(n)
	head := s.region.Bytes(s.chain[0])
	copy(head[uint32(len(head))-n:], blocks)
	return true
}

// Add implements [Layout].
func (s *InPlace) Add(source uint32, fs []umem.Frame) int {
	if len(fs) == 0 || !s.open() {
		return 0
	}
	done := 0
	for done < len(fs) {
		n, length := umem.PacketLen(fs[done:])
		if n == 0 || !s.put(source, fs[done:done+n], length) {
			break
		}
		done += n
	}
	return done
}

// put adds the kept bytes of one packet, in place if possible.
func (s *InPlace) put(source uint32, fs []umem.Frame, length uint32) bool {
	kept := s.snap.keep(length)
	block := pcapng.PacketBlockLen(kept+s.numbers.extra, InPlaceAlign)
	if after := s.length + uint64(block); after > s.limit || after > s.enough && s.packets > 0 {
		return false
	}
	s.chain[len(s.chain)-1].Options |= umem.More // an unsent Seal may have cleared it
	ok := false
	if f := fs[0]; f.Len < kept || !s.headed(f) {
		ok = s.writeCopied(source, fs, kept, length, block)
	} else {
		f.Len = kept
		ok = s.writeInPlace(source, f, length, block)
		if ok {
			s.spare.Push(fs[1:]...) // the other frames have no kept bytes
		}
	}
	if ok {
		s.length += uint64(block)
		s.packets++
		s.bytes += uint64(kept)
		s.latest = max(s.latest, systemTime(s.region.Side(fs[0])))
		s.snap.count(length, kept)
	}
	return ok
}

// writeInPlace makes the record of a packet where it landed. f has the kept bytes.
func (s *InPlace) writeInPlace(source uint32, f umem.Frame, length, block uint32) bool {
	if s.fits(f, block) {
		return s.writeHere(source, f, length, block)
	}
	return s.writeSpilled(source, f, length, block)
}

// headed reports whether a block header fits before f: in f's frame, and at an offset where direct
// I/O may begin.
func (s *InPlace) headed(f umem.Frame) bool {
	start, _ := s.region.Start(f)
	return f.Addr-start >= pcapng.PacketHeaderLen && (f.Addr-pcapng.PacketHeaderLen)%InPlaceAlign == 0
}

// fits reports whether a record of block bytes around f fits f's frame.
func (s *InPlace) fits(f umem.Frame, block uint32) bool {
	start, room := s.region.Start(f)
	return f.Addr-start-pcapng.PacketHeaderLen+uint64(block) <= room
}

// writeHere writes the record around the packet.
func (s *InPlace) writeHere(source uint32, f umem.Frame, length, block uint32) bool {
	if len(s.chain) == cap(s.chain) {
		return false
	}
	addr := f.Addr - pcapng.PacketHeaderLen
	out := s.region.At(addr, uint64(block))
	putHeader(out, source, s.region.Side(f), f.Len, length, block)
	s.numbers.tail(source, out[pcapng.PacketHeaderLen+f.Len:], f.Len, block)
	s.chain = append(s.chain, umem.Frame{Addr: addr, Len: block, Options: umem.More})
	return true
}

// writeSpilled is writeHere for a packet whose record does not fit its frame. The rest of the
// record goes into a spare frame.
func (s *InPlace) writeSpilled(source uint32, f umem.Frame, length, block uint32) bool {
	n := len(s.chain)
	if n+2 > cap(s.chain) || !s.spare.Pop(s.chain[n+1:n+2]) {
		return false
	}
	s.chain = s.chain[:n+2]
	addr := f.Addr - pcapng.PacketHeaderLen
	start, room := s.region.Start(f)
	here := room - (addr - start)
	putHeader(s.region.At(addr, pcapng.PacketHeaderLen), source, s.region.Side(f), f.Len, length, block)
	s.numbers.tail(source, s.tail[:], f.Len, block)
	tail := s.tail[:pcapng.PacketTailLen(f.Len, block)]
	end := f.Addr + uint64(f.Len)
	cut := copy(s.region.At(end, start+room-end), tail)
	rest, _ := s.region.Start(s.chain[n+1])
	copy(s.region.At(rest, uint64(len(tail)-cut)), tail[cut:])
	s.chain[n] = umem.Frame{Addr: addr, Len: uint32(here), Options: umem.More}
	s.chain[n+1] = umem.Frame{Addr: rest, Len: block - uint32(here), Options: umem.More}
	return true
}

// writeCopied writes the record into spare frames and frees the packet's frames.
func (s *InPlace) writeCopied(source uint32, fs []umem.Frame, kept, length, block uint32) bool {
	size := s.region.FrameSize()
	first := len(s.chain)
	n := int((block + size - 1) / size)
	if first+n > cap(s.chain) || !s.spare.Pop(s.chain[first:first+n]) {
		return false
	}
	s.chain = s.chain[:first+n]
	g := frameWriter{region: s.region, frames: s.chain[first:]}
	putHeader(s.tail[:], source, s.region.Side(fs[0]), kept, length, block)
	g.write(s.tail[:pcapng.PacketHeaderLen])
	rest := kept
	for _, f := range fs {
		n := min(f.Len, rest)
		g.write(s.region.Bytes(f)[:n])
		rest -= n
	}
	s.numbers.tail(source, s.tail[:], kept, block)
	g.write(s.tail[:pcapng.PacketTailLen(kept, block)])
	g.end()
	s.spare.Push(fs...)
	if len(fs) > 1 {
		s.copied.MultiFrame.Add(uint64(kept))
	} else {
		s.copied.Unaligned.Add(uint64(kept))
	}
	return true
}

// Size implements [Layout].
func (s *InPlace) Size() uint64 { return s.length }

// Count implements [Layout].
func (s *InPlace) Count() (uint32, uint64) { return s.packets, s.bytes }

// ExtentFrames implements [Layout].
func (s *InPlace) ExtentFrames() int { return 0 }

// Newest implements [Layout].
func (s *InPlace) Newest() uint64 { return s.latest }

// Seal implements [Layout].
func (s *InPlace) Seal(b pcapng.Batch) []umem.Frame {
	b.Length, b.Packets = uint32(s.length), s.packets
	head := s.region.Bytes(s.chain[0])
	pcapng.PutBatchHeader(head[:uint32(len(head))-s.notes], &b)
	s.chain[len(s.chain)-1].Options &^= umem.More
	return s.chain
}

// Reset implements [Layout].
func (s *InPlace) Reset() {
	s.chain, s.notes, s.length, s.packets, s.bytes, s.latest = s.chain[:0], 0, 0, 0, 0, 0
}

// Free implements [Layout].
func (s *InPlace) Free(fs []umem.Frame) {
	if s.landed == nil {
		s.spare.Push(fs...)
		return
	}
	for _, f := range fs {
		if _, room := s.region.Start(f); room > uint64(s.region.FrameSize()) {
			s.landed.Push(f)
		} else {
			s.spare.Push(f)
		}
	}
}

// frameWriter writes a record across frames, from the start of each.
type frameWriter struct {
	region *umem.Region
	frames []umem.Frame
	frame  int
	used   uint32 // of the current frame
}

func (g *frameWriter) write(b []byte) {
	for len(b) > 0 {
		start, room := g.region.Start(g.frames[g.frame])
		n := copy(g.region.At(start, room)[g.used:], b)
		b = b[n:]
		g.used += uint32(n)
		if uint64(g.used) == room && len(b) > 0 {
			g.close(start)
		}
	}
}

// close makes the current frame a piece of the record and goes to the next.
func (g *frameWriter) close(start uint64) {
	g.frames[g.frame] = umem.Frame{Addr: start, Len: g.used, Options: umem.More}
	g.frame, g.used = g.frame+1, 0
}

// end makes the last frame a piece of the record.
func (g *frameWriter) end() {
	start, _ := g.region.Start(g.frames[g.frame])
	g.close(start)
}
