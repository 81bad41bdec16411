package pcapng

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// Head is the head unit of a segment.
type Head struct {
	Segment    Segment
	Len        int64    // bytes of the head unit
	Section    []byte   // the Section Header Block
	Interfaces [][]byte // the Interface Description Blocks
}

// severalClocks reports whether packets may have times of a card's own clock.
func (h *Head) severalClocks() bool {
	return slices.ContainsFunc(h.Interfaces, func(block []byte) bool {
		found := false
		_ = checkOptions(block[16:len(block)-4], func(code uint16, _ []byte) bool { // known to be well-formed
			found = found || code == ifCardClock
			return true
		})
		return found
	})
}

// ReadHead reads the head unit of a segment of at most size bytes. The error is ErrNotSegment if there is
// none.
func ReadHead(r io.ReaderAt, size int64) (Head, error) {
	s := newReading(r, size)
	s.w = smallWindow(r, size)
	err := s.readHead()
	return s.head, err
}

// maxBatch bounds the batches that Read loads into memory. Writers make none longer than an extent.
const maxBatch = 64 << 20

// Read calls fn with each good batch of a segment, in order, and its bytes, which are valid during
// the call. It checks as Recover does and changes nothing. It reads each batch once and checks it
// in memory, so the file may be written during the call. It ends with fn's error, if there is one.
// The report covers the part that was read.
func Read(r io.ReaderAt, size int64, o Options, fn func(b Batch, data []byte) error) (Report, error) {
	s := newReading(r, size)
	s.numbered, s.each = o.Numbered, fn
	if err := s.readHead(); err != nil {
		return s.report, err
	}
	if err := s.scan(); err != nil {
		return s.report, err
	}
	return s.report, s.finish()
}

func newReading(r io.ReaderAt, size int64) *recovery {
	return reading(r, size, newWindow(r, size))
}

func reading(r io.ReaderAt, size int64, w *window) *recovery {
	return &recovery{f: readOnly{r}, dry: true, w: w, report: Report{Size: size}}
}

// view returns the window for the blocks of a batch: on the file, or on a copy in memory. It is nil
// if the mark contradicts the batch.
func (r *recovery) view(b *Batch, k kind, end int64) (*window, error) {
	if r.each == nil || k != kindBatch {
		return r.w, nil
	}
	if b.Length > maxBatch {
		return nil, nil
	}
	if cap(r.batch) < int(b.Length) {
		r.batch = make([]byte, b.Length)
	}
	r.batch = r.batch[:b.Length]
	if n, err := r.f.ReadAt(r.batch, int64(b.Offset)); n < len(r.batch) {
		return nil, err
	}
	if now, _, err := parseMark(r.batch); err != nil || now != *b {
		return nil, nil
	}
	return &window{r: r.f, end: end, buf: r.batch, off: int64(b.Offset)}, nil
}

// EachPacket calls fn with the packets of a batch from Read, and ends with fn's error.
func EachPacket(data []byte, fn func(Packet) error) error {
	blocks := reader{w: &window{r: bytes.NewReader(nil), end: int64(len(data)), buf: data}, end: int64(len(data))}
	for {
		b, err := blocks.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if p, ok := b.Packet(); ok {
			if err := fn(p); err != nil {
				return err
			}
		}
	}
}

// readOnly is a File that only reads.
type readOnly struct{ io.ReaderAt }

var errReadOnly = errors.New("opened for reading only")

func (readOnly) WriteAt([]byte, int64) (int, error) { return 0, errReadOnly }
func (readOnly) Seek(int64, int) (int64, error)     { return 0, errReadOnly }
func (readOnly) Truncate(int64) error               { return errReadOnly }
func (readOnly) Sync() error                        { return errReadOnly }
