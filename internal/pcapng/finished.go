package pcapng

import (
	"errors"
	"fmt"
	"io"
)

// Finished reports whether a segment of size bytes was closed properly. Then it ends in a batch without
// packets, as long as the segment's alignment, that declares everything before it durable. Finished reads
// only the head and the end. A file that is not one of our segments is not finished.
func Finished(f io.ReaderAt, size int64) (bool, error) {
	_, done, err := Count(f, size)
	return done, err
}

// Count is Finished, and returns how many packets a segment that was closed properly has. Those that a recovery found to be
// lost count too.
func Count(f io.ReaderAt, size int64) (packets uint64, finished bool, err error) {
	r := newReading(f, size)
	r.w = smallWindow(f, size)
	if err := r.readHead(); errors.Is(err, ErrNotSegment) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, fmt.Errorf("read capture file: %w", err)
	}
	align := int64(r.report.Align)
	if size-align < r.good {
		return 0, false, nil
	}
	raw, err := r.w.bytes(size-align, int(align))
	if err != nil {
		return 0, false, err
	}
	b, k, err := parseMark(raw)
	finished = err == nil && k == kindBatch && b.Segment == r.report.Segment && b.Packets == 0 &&
		int64(b.Length) == align && int64(b.Offset) == size-align && b.Durable == b.Offset && b.FirstPacket >= r.report.FirstPacket
	if !finished {
		return 0, false, nil
	}
	return b.FirstPacket - r.report.FirstPacket, true, nil
}
