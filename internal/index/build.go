package index

import (
	"fmt"
	"io"
	"math"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// leastBlock is the minimum number of bytes in a block, except for the last one of a segment. Reading fewer
// bytes at once is hardly faster.
const leastBlock = 256 << 10

// Builder makes the index of one segment from its batches, in their order.
type Builder struct {
	w        io.WriterAt
	ethernet []bool // by interface; packets of other link types are not parsed
	at       int64  // offset of the next section
	sum      Summary
	section  section
	open     block
	seen     seen
	packet   packet
	raw      []byte
}

// newBuilder begins an index that is written to w. The header comes last, so that the file is not a valid
// index after a crash.
func newBuilder(w io.WriterAt, head *pcapng.Head) *Builder {
	b := &Builder{w: w, at: headerLen, sum: Summary{Segment: head.Segment.ID}}
	for i := range head.Interfaces {
		b.ethernet = append(b.ethernet, head.Interface(i).LinkType == pcapng.LinkTypeEthernet)
	}
	return b
}

// Add adds a batch and its packets.
func (b *Builder) Add(batch pcapng.Batch, data []byte) error {
	if batch.Packets == 0 {
		return nil
	}
	if int64(batch.Offset) != b.open.offset+int64(b.open.length) { // something was lost in between
		if err := b.closeBlock(); err != nil {
			return err
		}
	}
	if b.open.packets == 0 {
		b.open = block{offset: int64(batch.Offset), first: math.MaxUint64}
	}
	b.sum.Batches++
	number := len(b.section.blocks)
	err := pcapng.EachPacket(data, func(p pcapng.Packet) error {
		b.add(&p, number)
		return nil
	})
	if err != nil {
		return err
	}
	end := int64(batch.Offset) + int64(batch.Length)
	b.open.length, b.open.packets = uint32(end-b.open.offset), b.open.packets+batch.Packets
	if b.open.length >= leastBlock {
		return b.closeBlock()
	}
	return nil
}

// add adds a packet.
func (b *Builder) add(p *pcapng.Packet, number int) {
	o := &b.open
	o.first, o.last = min(o.first, p.Time), max(o.last, p.Time)
	if o.unsure {
		return
	}
	if int(p.Interface) >= len(b.ethernet) || !b.ethernet[p.Interface] || b.seen.full() {
		o.unsure = true
		return
	}
	k := &b.packet
	k.parse(p.Data)
	o.unsure = k.unsure
	for _, h := range k.keys[:k.n] {
		if b.seen.add(h) {
			b.section.entries = append(b.section.entries, entry(short(h), number))
		}
	}
}

// closeBlock adds the open block to the section. It writes the section if that is long enough.
func (b *Builder) closeBlock() error {
	if b.open.packets == 0 {
		return nil
	}
	b.section.blocks = append(b.section.blocks, b.open)
	if b.open.unsure {
		b.sum.Unsure++
	}
	b.open = block{}
	b.seen.clear()
	if len(b.section.entries) >= maxEntries || len(b.section.blocks) == maxBlocks {
		return b.closeSection()
	}
	return nil
}

func (b *Builder) closeSection() error {
	s := &b.section
	if len(s.blocks) == 0 {
		return nil
	}
	b.raw = s.encode(b.raw)
	if _, err := b.w.WriteAt(b.raw, b.at); err != nil {
		return err
	}
	b.at += int64(len(b.raw))
	b.sum.sections++
	b.sum.Blocks += uint64(len(s.blocks))
	b.sum.Entries += uint64(len(s.entries))
	s.reset()
	return nil
}

// Close writes the rest and the header, and returns the summary of the index. The report is from the reading
// that provided the batches.
func (b *Builder) Close(r pcapng.Report) (Summary, error) {
	if err := b.closeBlock(); err != nil {
		return b.sum, err
	}
	if err := b.closeSection(); err != nil {
		return b.sum, err
	}
	b.sum.Size, b.sum.Bytes = r.Size, b.at
	b.sum.Missing, b.sum.Packets = max(r.MissingBatches, r.Torn), r.Packets
	if _, err := b.w.WriteAt(b.sum.encode(), 0); err != nil {
		return b.sum, fmt.Errorf("write the header: %w", err)
	}
	return b.sum, nil
}
