package pcapng

import "io"

// Reach is the offset behind the last batch that marks lead to, one behind the other from the head on: of a segment that is
// being written, or was left by a crash, what may be read. It reads each mark. The last batches may be on their way to the
// disk still: where zeros are in place of a block, there is no more. ErrNotSegment when there is no head.
func Reach(f io.ReaderAt, size int64) (int64, error) {
	r, err := quickScan(f, size)
	if err != nil {
		return 0, err
	}
	for pos := r.good; ; {
		b, k, ok, err := r.markAt(pos)
		if end := pos + int64(b.Length); ok && err == nil && end <= size {
			if pos = end; k != kindEnd {
				continue
			}
		}
		return pos, err
	}
}
