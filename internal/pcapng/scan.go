package pcapng

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// scan reads everything after the head once, and keeps the good batches.
func (r *recovery) scan() error {
	for pos := r.good; pos < r.report.Size; {
		next, err := r.step(pos)
		if err != nil {
			return err
		}
		pos = next
	}
	return nil
}

// step checks one aligned offset and returns the next one to check.
func (r *recovery) step(pos int64) (next int64, err error) {
	b, k, ok, err := r.markAt(pos)
	if err != nil {
		return 0, err
	}
	if !ok {
		return r.candidate(pos + int64(r.report.Align))
	}
	if k == kindEnd {
		return r.end(&b)
	}
	end := pos + int64(b.Length)
	intact, err := r.intact(&b, k, end)
	if err != nil || k == kindBridge {
		return end, err
	}
	if !intact {
		r.report.Torn++
		return end, nil
	}
	return end, r.take(&b, pos, end)
}

// end checks the end mark of a segment of a ring, and returns the next offset to check.
func (r *recovery) end(b *Batch) (next int64, err error) {
	if !r.ends(b) && !r.lacks(b) {
		return r.candidate(int64(b.Offset) + int64(r.report.Align))
	}
	p := &r.report
	p.Ended = !b.Mended
	p.MissingBatches += b.Sequence - r.sequence - 1
	if p.Batches > 0 && b.FirstPacket > r.next {
		p.MissingPackets += b.FirstPacket - r.next
	}
	if int64(b.Offset) > r.good {
		err = r.hole(r.good, int64(b.Offset))
		r.good = int64(b.Offset)
	}
	return p.Size, err
}

// ends reports whether a mark ends the segment directly after the last good batch. Other marks are from an
// earlier use of the slot.
func (r *recovery) ends(b *Batch) bool {
	return r.numbered && int64(b.Offset) == r.good && b.Sequence == r.sequence+1
}

// lacks reports whether a mark ends a complete segment whose last batches are missing.
func (r *recovery) lacks(b *Batch) bool {
	return r.numbered && b.completes(kindEnd) && int64(b.Offset) >= r.good && b.Sequence > r.sequence+1
}

// markAt reads a mark of this segment that lies at the offset it names.
func (r *recovery) markAt(pos int64) (b Batch, k kind, ok bool, err error) {
	if r.report.Size-pos < MinMarkLen {
		return b, 0, false, nil
	}
	raw, err := r.w.bytes(pos, MinMarkLen)
	if err != nil {
		return b, 0, false, err
	}
	b, k, bad := parseMark(raw)
	if bad != nil || k == kindHead || b.Offset != uint64(pos) ||
		b.Segment != r.report.Segment || b.Align != r.report.Align {
		return b, k, false, nil
	}
	if b.completes(k) {
		r.ending = b
	}
	r.report.Durable = max(r.report.Durable, b.Durable)
	r.doubts.settle(r.report.Durable)
	return b, k, true, nil
}

// intact checks a batch against its mark. A bridge must be one block. A batch must consist exactly
// of blocks that we write, with that number of packets, and follow all batches before it.
func (r *recovery) intact(b *Batch, k kind, end int64) (bool, error) {
	if end > r.report.Size {
		return false, nil
	}
	w, err := r.view(b, k, end)
	if w == nil || err != nil {
		return false, err
	}
	blocks := reader{w: w, pos: int64(b.Offset), end: end}
	packets := uint64(0)
	mark, err := blocks.Next()
	if err == nil && k == kindBatch {
		packets, err = r.records(&blocks, b.FirstPacket)
	}
	switch {
	case errors.Is(err, errFormat):
		return false, nil
	case k == kindBridge:
		return mark.Len() == int(b.Length), err
	}
	return packets == uint64(b.Packets) && r.inOrder(b), err
}

// records counts the packets after a mark and checks every block there. first is the number of the first
// packet.
func (r *recovery) records(blocks *reader, first uint64) (packets uint64, err error) {
	for {
		b, err := blocks.Next()
		if err == io.EOF {
			return packets, nil
		}
		if err != nil {
			return 0, err
		}
		if err := r.record(b); err != nil {
			return 0, err
		}
		if b.Type != TypePacket {
			continue
		}
		if n, ok := b.Number(); r.numbered && (!ok || n != first+packets) {
			return 0, &FormatError{Offset: b.Offset, Reason: errNumber}
		}
		packets++
	}
}

// record checks one block inside a batch. A second mark is an error.
func (r *recovery) record(b Block) error {
	err := r.check.record(b)
	if err == nil && b.Type == TypeMark && claimsMark(b) {
		err = errPadding
	}
	if err != nil {
		return &FormatError{Offset: b.Offset, Reason: err}
	}
	return nil
}

// inOrder reports whether all numbers of the batch follow those of the last good one.
func (r *recovery) inOrder(b *Batch) bool { return b.Sequence > r.sequence && b.FirstPacket >= r.next }

// take counts a good batch, after it bridges the gap to the batch before.
func (r *recovery) take(b *Batch, pos, end int64) error {
	if pos > r.good {
		if err := r.hole(r.good, pos); err != nil {
			return err
		}
	}
	p := &r.report
	if r.numbered && p.Batches == 0 { // only the first batch shows where the segment's numbers begin
		r.next, p.FirstPacket = b.FirstPacket, b.FirstPacket
	}
	p.MissingBatches += b.Sequence - r.sequence - 1
	p.MissingPackets += b.FirstPacket - r.next
	p.Batches++
	p.Packets += uint64(b.Packets)
	r.good, r.sequence, r.next = end, b.Sequence, b.FirstPacket+uint64(b.Packets)
	p.LastPacket = r.next - 1
	r.doubts.add(uint64(end), uint64(b.Packets))
	r.doubts.settle(p.Durable)
	if r.each != nil {
		return r.each(*b, r.batch)
	}
	return nil
}

// candidate returns the first aligned offset from pos on where a mark may begin, or the end.
func (r *recovery) candidate(pos int64) (int64, error) {
	align := int64(r.report.Align)
	for {
		if pos = r.skipUnwritten(pos); r.report.Size-pos < MinMarkLen {
			return r.report.Size, nil
		}
		seen, err := r.w.rest(pos, 4)
		if err != nil {
			return 0, err
		}
		for ; len(seen) >= 4; pos += align {
			if le.Uint32(seen) == TypeMark {
				return pos, nil
			}
			seen = seen[min(align, int64(len(seen))):]
		}
	}
}

// skipUnwritten returns the offset of the next data, if the file system knows it, rounded down to
// the alignment.
func (r *recovery) skipUnwritten(pos int64) int64 {
	data, err := r.f.Seek(pos, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // no data from pos on
		return r.report.Size
	case err != nil || data <= pos:
		return pos
	}
	return data &^ (int64(r.report.Align) - 1)
}
