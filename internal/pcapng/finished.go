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
	r := newReading(f, size)
	r.w = smallWindow(f, size)
	if err := r.readHead(); errors.Is(err, ErrNotSegment) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read capture file: %w", err)
	}
	align := int64(r.report.Align)
	if size-align < r.good {
		return false, nil
	}
	raw, err := r.w.bytes(size-align, int(align))
	if err != nil {
		return false, err
	}
	b, k, err := parseMark(raw)
	return err == nil && k == kindBatch && b.Segment == r.report.Segment && b.Packets == 0 &&
		int64(b.Length) == align && int64(b.Offset) == size-align && b.Durable == b.Offset, nil
}
