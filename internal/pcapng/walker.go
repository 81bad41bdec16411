package pcapng

import (
	"bytes"
	"errors"
	"io"
)

// ErrReplaced means that a segment's head has changed: its slot has another segment now.
var ErrReplaced = errors.New("the segment was overwritten during the call")

// Walker reads a segment batch by batch, even while it is being written. It reports when no good
// batch follows, and the caller may ask again later. It checks as Recover does and changes nothing.
// It belongs to one goroutine.
type Walker struct {
	r    *recovery
	head []byte // as it was found, of a numbered segment

	got  bool
	now  Batch
	data []byte
	last reached // in front of the batch that was given last
}

// reached is the position of a walk.
type reached struct {
	good                    int64
	sequence, next, batches uint64
}

// NewWalker begins to read a segment of at most size bytes; numbered is as in Options. The error is
// ErrNotSegment if there is no head.
func NewWalker(f io.ReaderAt, size int64, numbered bool) (*Walker, error) {
	w := &Walker{r: newReading(f, size)}
	w.r.w, w.r.numbered = smallWindow(f, size), numbered
	w.r.each = func(b Batch, data []byte) error {
		w.got, w.now, w.data = true, b, data
		return nil
	}
	if err := w.r.readHead(); err != nil {
		return nil, err
	}
	w.last = w.place()
	if !numbered {
		return w, nil
	}
	w.head = make([]byte, w.r.head.Len)
	_, err := f.ReadAt(w.head, 0)
	return w, err
}

// Head returns the segment's head. The caller may read it.
func (w *Walker) Head() *Head { return &w.r.head }

// Place returns the offset after the last batch.
func (w *Walker) Place() int64 { return w.r.good }

// Before returns the offset after the second-last batch, if there can be one.
func (w *Walker) Before() int64 { return w.last.good }

// Grow sets the present size of the segment in bytes.
func (w *Walker) Grow(size int64) { w.r.report.Size, w.r.w.end = size, size }

// Next returns the batch that follows the last one, with only bridges between, and its bytes, which are valid
// until the next call. io.EOF means that there is none, or not yet. ErrReplaced is as in Skip.
func (w *Walker) Next() (Batch, []byte, error) {
	r := w.r
	r.w.buf = r.w.buf[:0] // the file may have changed
	w.got, w.last = false, w.place()
	for !w.got {
		on, err := w.follow()
		if err != nil || !on {
			return Batch{}, nil, orEOF(err)
		}
	}
	return w.give()
}

// follow reads the batch after the last one, and reports whether there is one.
func (w *Walker) follow() (bool, error) {
	r, pos := w.r, w.r.good
	b, k, ok, err := r.markAt(pos)
	if err != nil || !ok || k == kindEnd {
		return false, err
	}
	end := pos + int64(b.Length)
	if intact, err := r.intact(&b, k, end); err != nil || !intact {
		return false, err
	}
	if k == kindBridge {
		r.good = end
		return true, nil
	}
	return true, r.take(&b, pos, end)
}

// nearSteps is how many offsets Skip checks before it reads the file in large pieces. Mostly the next batch is at the
// first of them, and a piece would be read for each batch.
const nearSteps = 4

// Skip returns the next good batch, whatever lies before it. io.EOF means that there is none. ErrReplaced
// means that the slot of a ring has another segment now.
func (w *Walker) Skip() (Batch, []byte, error) {
	r := w.r
	r.w.buf = r.w.buf[:0] // the file may have changed
	w.got, w.last = false, w.place()
	var err error
	steps := 0
	for pos := r.good; !w.got && pos < r.report.Size && err == nil; steps++ {
		if steps == nearSteps {
			r.w = newWindow(r.f, r.report.Size)
		}
		pos, err = r.step(pos)
	}
	if steps > nearSteps {
		r.w = smallWindow(r.f, r.report.Size)
	}
	if err != nil || !w.got {
		return Batch{}, nil, orEOF(err)
	}
	return w.give()
}

// Again makes Next and Skip return the last batch again.
func (w *Walker) Again() {
	r, p := w.r, &w.r.report
	r.good, r.sequence, r.next, p.Batches = w.last.good, w.last.sequence, w.last.next, w.last.batches
}

func (w *Walker) place() reached {
	return reached{w.r.good, w.r.sequence, w.r.next, w.r.report.Batches}
}

// give returns the batch, if it still belongs to this segment.
func (w *Walker) give() (Batch, []byte, error) {
	if err := w.same(); err != nil {
		return Batch{}, nil, err
	}
	return w.now, w.data, nil
}

// same returns ErrReplaced if the head has changed.
func (w *Walker) same() error {
	if w.head == nil {
		return nil
	}
	now := make([]byte, len(w.head))
	if _, err := w.r.f.ReadAt(now, 0); err != nil {
		return err
	}
	if !bytes.Equal(now, w.head) {
		return ErrReplaced
	}
	return nil
}

// orEOF returns io.EOF if there is no error.
func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// Durable reports whether the writer knew that everything up to an offset and more was on stable storage,
// when it wrote a later batch or completed the segment. The end mark of a recovery does not count.
func (w *Walker) Durable(offset int64) (bool, error) {
	probe := *w.r
	probe.batch, probe.doubts, probe.report.Holes, probe.w = nil, doubts{}, nil, newWindow(w.r.f, w.r.report.Size)
	found := errors.New("found")
	probe.each = func(b Batch, _ []byte) error {
		if b.Packets > 0 && b.Durable > uint64(offset) {
			return found
		}
		return nil
	}
	err := probe.scan()
	if errors.Is(err, found) {
		return true, nil
	}
	w.r.ending = probe.ending
	return err == nil && probe.ending.Durable > uint64(offset), err
}

// Completed returns the number that follows the segment's last packet, from the mark with which its
// writer completed it, and the offset of that mark. It is known after Next, Skip or Durable has
// read the mark. Zeros mean that the segment has no packets, or that the number is not known.
func (w *Walker) Completed() (next uint64, place int64) {
	return w.r.ending.FirstPacket, int64(w.r.ending.Offset)
}
