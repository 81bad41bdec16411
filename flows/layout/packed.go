package layout

import (
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/prefetch"
	"github.com/unifiedd/unifiedd/umem"
)

// Packed copies packets back to back into extents. Each batch is one extent and one write. Frames
// are free at once after the copy.
type Packed struct {
	region  *umem.Region
	align   uint32
	limit   uint32         // largest batch in bytes
	enough  uint32         // largest batch with more than one packet, in bytes
	mark    uint32         // bytes of the mark at the start; 0 in a stream
	spare   *umem.FreeList // frames
	extents umem.FreeList
	total   int // number of extents, in any state
	frames  int // of an extent
	copied  *Copies
	numbers Numbering
	snap    *SnapLen
	records *Records
	head    uint32 // bytes of a header in records

	extent  umem.Frame
	out     []byte // the open extent's memory; nil: none is open
	used    uint32
	packets uint32
	bytes   uint64
	latest  uint64 // time of the newest packet
	message [1]umem.Frame
}

// NewPacked returns a layout that copies into the extents, which it then owns. Batches are
// multiples of align bytes. A batch with more than one packet has at most enough bytes. With an
// align of 1 batches are those of a stream, without a mark and without padding.
func NewPacked(c Config, align, enough uint32, extents []umem.Frame) *Packed {
	p := &Packed{
		region: c.Region, align: align, limit: uint32(c.Limit), enough: enough, spare: c.Free, extents: *umem.NewFreeList(extents), copied: c.Copies,
		snap: c.SnapLen, numbers: c.Numbers, records: c.Records, total: len(extents), frames: int(c.Region.ExtentSize() / uint64(c.Region.FrameSize())),
	}
	if align > 1 {
		p.mark = pcapng.MinMarkLen
	}
	if p.records != nil {
		p.head = protocol.HeaderLen
	}
	return p
}

// open ensures that there is an open extent.
func (p *Packed) open() bool {
	if p.out != nil {
		return true
	}
	if !p.extents.Pop(p.message[:]) {
		return false
	}
	p.extent = p.message[0]
	p.out = p.region.At(p.extent.Addr, uint64(p.limit))
	p.used = p.mark
	return true
}

// room reports whether n more bytes and the padding after them fit.
func (p *Packed) room(n uint32) bool {
	after := p.used + n + p.align + pcapng.MinPaddingLen
	return after <= p.limit && (after <= p.enough || p.packets == 0)
}

// Note implements [Layout].
func (p *Packed) Note(blocks []byte) bool {
	if !p.open() || !p.room(uint32(len(blocks))) {
		return false
	}
	p.used += uint32(copy(p.out[p.used:], blocks))
	return true
}

// Add implements [Layout].
func (p *Packed) Add(source uint32, fs []umem.Frame) int {
	if len(fs) == 0 || !p.open() {
		return 0
	}
	done, copied := 0, uint64(0)
	for done < len(fs) {
		n, length := umem.PacketLen(fs[done:])
		length += p.head
		kept := p.snap.keep(length)
		block := pcapng.PacketBlockLen(kept+p.numbers.extra, 4)
		if n == 0 || !p.room(block) {
			break
		}
		p.prefetch(fs[done+n:])
		p.put(source, fs[done:done+n], kept, length, block)
		p.snap.count(length, kept)
		done += n
		copied += uint64(kept)
	}
	p.copied.Packed.Add(copied) // once per call, not per packet
	p.spare.Push(fs[:done]...)
	return done
}

// prefetchAhead is how many frames ahead of the copy the CPU prefetches. Another CPU wrote the
// frames, so each cache line is a miss. With three frames ahead, copying a packet of 1 KiB took two
// thirds of the time (docs/how-to/tuning.md).
const prefetchAhead = 3

// prefetch makes the CPU prefetch packets that will be copied soon.
func (p *Packed) prefetch(next []umem.Frame) {
	if len(next) >= prefetchAhead {
		f := next[prefetchAhead-1]
		prefetch.Span(&p.region.At(f.Addr, 1)[0], p.snap.keep(f.Len))
	}
}

// put copies the kept bytes of one packet.
func (p *Packed) put(source uint32, fs []umem.Frame, kept, length, block uint32) {
	dst := p.out[p.used : p.used+block]
	side := p.region.Side(fs[0])
	putHeader(dst, source, side, kept, length, block)
	at, end := pcapng.PacketHeaderLen+p.head, pcapng.PacketHeaderLen+kept
	for _, f := range fs {
		at += uint32(copy(dst[at:end], p.region.Bytes(f)))
	}
	if p.records != nil {
		p.records.put(dst[pcapng.PacketHeaderLen:end], side)
	}
	p.numbers.tail(source, dst[at:], kept, block)
	p.used += block
	p.packets++
	p.bytes += uint64(kept)
	p.latest = max(p.latest, systemTime(side))
}

// Size implements [Layout].
func (p *Packed) Size() uint64 {
	if p.out == nil {
		return 0
	}
	return uint64(p.used + pcapng.PaddingLen(int64(p.used), p.align))
}

// Count implements [Layout].
func (p *Packed) Count() (uint32, uint64) { return p.packets, p.bytes }

// ExtentFrames implements [Layout].
func (p *Packed) ExtentFrames() int { return (p.total - p.extents.Len()) * p.frames }

// ReleaseExcess gives free extents to h while there are more than keep in all. It reports whether
// there still are.
func (p *Packed) ReleaseExcess(h *umem.Holder, keep int) (over bool) {
	p.total -= p.extents.ReleaseExcess(p.total-keep, h)
	return p.total > keep
}

// Newest implements [Layout].
func (p *Packed) Newest() uint64 { return p.latest }

// Seal implements [Layout].
func (p *Packed) Seal(b pcapng.Batch) []umem.Frame {
	length := uint32(p.Size())
	if length > p.used {
		pcapng.PutPadding(p.out[p.used:length])
	}
	if p.mark > 0 {
		b.Length, b.Packets = length, p.packets
		pcapng.PutBatchHeader(p.out[:p.mark], &b)
	}
	p.message[0] = umem.Frame{Addr: p.extent.Addr, Len: length}
	return p.message[:]
}

// Reset implements [Layout].
func (p *Packed) Reset() {
	p.out, p.used, p.packets, p.bytes, p.latest = nil, 0, 0, 0, 0
}

// Free implements [Layout].
func (p *Packed) Free(fs []umem.Frame) { p.extents.Push(fs...) }
