package flows

import (
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/prefetch"
	"github.com/unifiedd/unifiedd/umem"
)

// packed copies packets back to back into extents. Each batch is one extent and
// one write; frames are free again at once.
type packed struct {
	region  *umem.Region
	align   uint32
	limit   uint32         // bytes of a batch
	enough  uint32         // bytes of a batch that has more than one packet
	mark    uint32         // bytes of the mark in front: none in a stream
	spare   *umem.FreeList // frames
	extents umem.FreeList
	total   int // extents, wherever they are
	frames  int // of an extent
	copied  *copies
	numbers numbering
	snap    *snap

	extent  umem.Frame
	out     []byte // the open extent's memory; nil: none is open
	used    uint32
	packets uint32
	bytes   uint64
	latest  uint64 // time of the newest packet
	message [1]umem.Frame
}

// newPacked takes over the extents. Batches are multiples of align and at most
// limit bytes. With an align of 1 they are what a stream has: no mark in front
// and no padding.
func newPacked(r *umem.Region, align, limit uint32, spare *umem.FreeList, extents []umem.Frame, c *copies) *packed {
	p := &packed{region: r, align: align, limit: limit, enough: limit, spare: spare, extents: *umem.NewFreeList(extents), copied: c, snap: &snap{}, total: len(extents), frames: int(r.ExtentSize() / uint64(r.FrameSize()))}
	if align > 1 {
		p.mark = pcapng.MinMarkLen
	}
	return p
}

// open makes sure that there is an extent to write to.
func (p *packed) open() bool {
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
func (p *packed) room(n uint32) bool {
	after := p.used + n + p.align + pcapng.MinPaddingLen
	return after <= p.limit && (after <= p.enough || p.packets == 0)
}

func (p *packed) note(blocks []byte) bool {
	if !p.open() || !p.room(uint32(len(blocks))) {
		return false
	}
	p.used += uint32(copy(p.out[p.used:], blocks))
	return true
}

func (p *packed) add(source uint32, fs []umem.Frame) int {
	if len(fs) == 0 || !p.open() {
		return 0
	}
	done, copied := 0, uint64(0)
	for done < len(fs) {
		n, length := umem.PacketLen(fs[done:])
		kept := p.snap.keep(length)
		block := pcapng.PacketBlockLen(kept+p.numbers.extra, 4)
		if n == 0 || !p.room(block) {
			break
		}
		p.foresee(fs[done+n:])
		p.put(source, fs[done:done+n], kept, length, block)
		p.snap.count(length, kept)
		done += n
		copied += uint64(kept)
	}
	p.copied.packed.Add(copied) // once for all: it waits until what was copied is out of the processor
	p.spare.Push(fs[:done]...)
	return done
}

// foreseen is how many frames ahead of the one that is copied the processor is asked for. Another one has written them, which makes each line wait
// for that: with three ahead a packet of 1 KiB was copied in two thirds of the time (docs/layouts.md).
const foreseen = 3

// foresee has the processor fetch what will be copied soon.
func (p *packed) foresee(next []umem.Frame) {
	if len(next) >= foreseen {
		f := next[foreseen-1]
		prefetch.Span(&p.region.At(f.Addr, 1)[0], p.snap.keep(f.Len))
	}
}

// put copies what is kept of one packet.
func (p *packed) put(source uint32, fs []umem.Frame, kept, length, block uint32) {
	dst := p.out[p.used : p.used+block]
	side := p.region.Side(fs[0])
	putHeader(dst, source, side, kept, length, block)
	at, end := uint32(pcapng.PacketHeaderLen), pcapng.PacketHeaderLen+kept
	for _, f := range fs {
		at += uint32(copy(dst[at:end], p.region.Bytes(f)))
	}
	p.numbers.tail(source, dst[at:], kept, block)
	p.used += block
	p.packets++
	p.bytes += uint64(kept)
	p.latest = max(p.latest, systemTime(side))
}

func (p *packed) size() uint64 {
	if p.out == nil {
		return 0
	}
	return uint64(p.used + pcapng.PaddingLen(int64(p.used), p.align))
}

func (p *packed) count() (uint32, uint64) { return p.packets, p.bytes }

func (p *packed) away() int { return (p.total - p.extents.Len()) * p.frames }

func (p *packed) newest() uint64 { return p.latest }

func (p *packed) seal(b pcapng.Batch) []umem.Frame {
	length := uint32(p.size())
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

func (p *packed) reset() {
	p.out, p.used, p.packets, p.bytes, p.latest = nil, 0, 0, 0, 0
}

func (p *packed) free(fs []umem.Frame) { p.extents.Push(fs...) }
