package pcapng

import "io"

// Reach returns the offset after the last batch. It follows the marks from the head, and so finds
// the readable part of a segment that is being written, or that a crash left. It reads each mark.
// The last batches may not have reached the disk: Reach stops at zeros in place of a block. The
// error is ErrNotSegment if there is no head.
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
