package pcapng

import (
	"fmt"
	"io"
)

// Closing says how a segment of a ring ended.
type Closing struct {
	Head    Head
	Closed  bool   // ends in the mark that PutEnd makes, and from the head on each mark is where the one before ends
	Batches uint64 // in front of the end, those that are lost too
}

// Closed returns how a segment of a ring, in a slot of size bytes, ended. It reads marks only. The error is
// ErrNotSegment if the slot has no head.
func Closed(f io.ReaderAt, size int64) (Closing, error) {
	r := newReading(f, size)
	r.numbered, r.w = true, smallWindow(f, size)
	if err := r.readHead(); err != nil {
		return Closing{}, err
	}
	c := Closing{Head: r.head}
	for {
		b, k, ok, err := r.markAt(r.good)
		switch {
		case err != nil:
			return c, fmt.Errorf("read capture segment: %w", err)
		case !ok:
			return c, nil
		case k == kindEnd:
			if c.Closed = r.ends(&b) || int64(b.Offset) == r.good && r.lacks(&b); c.Closed {
				c.Batches = b.Sequence - 1
			}
			return c, nil
		case k == kindBatch && b.Sequence <= r.sequence:
			return c, nil
		case k == kindBatch:
			r.sequence = b.Sequence
			c.Batches++
		}
		r.good += int64(b.Length)
	}
}
