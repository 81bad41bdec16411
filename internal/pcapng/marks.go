package pcapng

import (
	"io"
)

// EachMark calls fn with every intact mark, of a batch or of a segment's end, that lies at the offset it
// names, in the first size bytes of a segment. The segment's head may be damaged. EachMark ends when fn
// returns false.
func EachMark(f io.ReaderAt, size int64, fn func(Batch) bool) error {
	w := newWindow(f, size)
	for at := int64(0); size-at >= MinMarkLen; at += MinAlign {
		raw, err := w.bytes(at, MinMarkLen)
		if err != nil {
			return err
		}
		if le.Uint32(raw) != TypeMark {
			continue
		}
		b, k, err := parseMark(raw)
		if err != nil || k != kindBatch && k != kindEnd || b.Offset != uint64(at) {
			continue
		}
		if !fn(b) {
			return nil
		}
	}
	return nil
}
