package pcapng

import "io"

// Part is a piece of a segment: several adjacent whole batches.
type Part struct{ Offset, Length int64 }

// ReadParts is Read for some parts of a segment, which are in file order and do not overlap. A part that does
// not begin with a batch has a torn one. The report covers these parts only.
func ReadParts(f io.ReaderAt, size int64, parts []Part, fn func(b Batch, data []byte) error) (Report, error) {
	r, err := quickScan(f, size)
	if err != nil {
		return r.report, err
	}
	r.each = fn
	for _, p := range parts {
		if err := r.part(p, size); err != nil {
			return r.report, err
		}
	}
	r.report.Size = size
	return r.report, nil
}

// part reads a part as if the segment began and ended with it.
func (r *recovery) part(p Part, size int64) error {
	r.report.Size = min(size, p.Offset+p.Length)
	if p.Offset < r.good || p.Length <= 0 || r.report.Size > size {
		r.report.Torn++
		return nil
	}
	first, k, ok, err := r.markAt(p.Offset)
	if err != nil {
		return err
	}
	if !ok || k != kindBatch {
		r.report.Torn++
		return nil
	}
	r.good, r.sequence, r.next = p.Offset, first.Sequence-1, first.FirstPacket
	return r.scan()
}
