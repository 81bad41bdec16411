package pcapng

import (
	"errors"
	"io"
)

// Times are the times of a segment's first packet and of its latest one, in nanoseconds since the
// epoch; 0 means not known. Between them, times ascend as the capture's clock did, except for
// packets of several queues that arrived together. The times are not known if some packets have
// times of a card's clock, whose epoch may differ.
type Times struct {
	Segment SegmentID
	First   uint64 // of the first packet of the first batch with any
	Last    uint64 // the latest of the last batch with any, of a closed file
}

// ReadTimes reads the times at both ends of a segment of at most size bytes. It reads little else: the head,
// the beginning of the first batch, and, if the file is closed, the last batch. Another process may write the
// segment during the call; a time in doubt is left out. The error is ErrNotSegment if there is no head.
func ReadTimes(f io.ReaderAt, size int64) (t Times, err error) {
	r, err := quickScan(f, size)
	if err != nil {
		return t, err
	}
	t.Segment = r.report.Segment
	if r.head.severalClocks() {
		return t, nil
	}
	if t.First, err = r.firstTime(); err != nil || t.First == 0 {
		return t, err
	}
	t.Last, err = r.lastTime()
	return t, err
}

// FirstTime is ReadTimes for the beginning alone.
func FirstTime(f io.ReaderAt, size int64) (t Times, err error) {
	r, err := quickScan(f, size)
	if err != nil {
		return t, err
	}
	t.Segment = r.report.Segment
	if r.head.severalClocks() {
		return t, nil
	}
	t.First, err = r.firstTime()
	return t, err
}

// LatestTime is the latest time in the last batch with packets. It finds that batch by the marks, one after
// the other from the head on. In a segment that was recovered or completed it is the latest of all. It reads
// each mark. The time is 0 if there is no packet.
func LatestTime(f io.ReaderAt, size int64) (uint64, error) {
	r, err := quickScan(f, size)
	if err != nil || r.head.severalClocks() {
		return 0, err
	}
	var last Batch
	for pos := r.good; ; {
		b, k, ok, err := r.markAt(pos)
		if err != nil {
			return 0, err
		}
		if !ok || k == kindEnd {
			break
		}
		if k == kindBatch && b.Packets > 0 {
			last = b
		}
		pos += int64(b.Length)
	}
	if last.Packets == 0 {
		return 0, nil
	}
	return r.latest(&last)
}

// quickScan begins a read of a small part of a segment.
func quickScan(f io.ReaderAt, size int64) (*recovery, error) {
	r := reading(f, size, smallWindow(f, size)) // each status of a flow reads a time
	return r, r.readHead()
}

// firstTime returns the time of the first packet.
func (r *recovery) firstTime() (uint64, error) {
	for pos := r.good; ; {
		b, k, ok, err := r.markAt(pos)
		if err != nil || !ok || k != kindBatch {
			return 0, err
		}
		pos += int64(b.Length)
		if b.Packets > 0 {
			return r.timeIn(&b, pos)
		}
	}
}

// timeIn returns the time of the first packet of a batch that ends at end.
func (r *recovery) timeIn(b *Batch, end int64) (uint64, error) {
	blocks := reader{w: r.w, pos: int64(b.Offset), end: min(end, r.report.Size)}
	for {
		block, err := blocks.Next()
		if errors.Is(err, errFormat) || err == io.EOF {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if p, ok := block.Packet(); ok {
			if n, numbered := block.Number(); numbered && n != b.FirstPacket {
				return 0, nil // of an older segment, under a torn batch
			}
			return p.Time, nil
		}
	}
}

// lastTime returns the latest time in the last batch of a closed file that has packets.
func (r *recovery) lastTime() (uint64, error) {
	b, ok, err := r.closing()
	for ok && err == nil && b.Packets == 0 {
		b, ok, err = r.inFront(&b)
	}
	if !ok || err != nil {
		return 0, err
	}
	return r.latest(&b)
}

// closing returns the batch without packets at the end of a closed file.
func (r *recovery) closing() (b Batch, ok bool, err error) {
	align := int64(r.report.Align)
	if r.report.Size-align < r.good || r.report.Size%align != 0 {
		return b, false, nil
	}
	b, k, ok, err := r.markAt(r.report.Size - align)
	return b, ok && k == kindBatch && b.Packets == 0 && int64(b.Length) == align && b.Durable == b.Offset, err
}

// inFront returns the batch directly before another, whose sequence is one less.
func (r *recovery) inFront(of *Batch) (b Batch, ok bool, err error) {
	align := int64(r.report.Align)
	end := int64(of.Offset)
	least := max(r.good, end-maxBatch)
	r.w = newWindow(r.f, end)
	from := end
	for pos := end - align; pos >= least; pos -= align {
		if pos < from { // the window reads forward
			from = max(least, pos+align-windowLen)
			if _, err := r.w.bytes(from, int(pos+align-from)); err != nil {
				return b, false, err
			}
		}
		b, k, ok, err := r.markAt(pos)
		if err != nil || ok && k == kindBatch && b.Sequence+1 == of.Sequence && pos+int64(b.Length) == end {
			return b, err == nil, err
		}
	}
	return b, false, nil
}

// latest returns the latest time in a batch; 0 if the batch is not whole.
func (r *recovery) latest(b *Batch) (ns uint64, err error) {
	data := make([]byte, b.Length)
	if _, err := r.f.ReadAt(data, int64(b.Offset)); err != nil {
		return 0, err
	}
	err = EachPacket(data, func(p Packet) error { ns = max(ns, p.Time); return nil })
	if errors.Is(err, errFormat) {
		return 0, nil
	}
	return ns, err
}
