package pcapng

import (
	"fmt"
	"io"
)

// windowLen is how many bytes are read at once. The longest block fits.
const windowLen = 1 << 20

// window reads a file through one buffer.
type window struct {
	r   io.ReaderAt
	end int64  // nothing is read from here on
	buf []byte // the bytes at off
	off int64
}

func newWindow(r io.ReaderAt, end int64) *window {
	return &window{r: r, end: end, buf: make([]byte, 0, max(0, min(windowLen, end)))}
}

// smallWindow returns a window for readers of a few scattered bytes.
func smallWindow(r io.ReaderAt, end int64) *window {
	return &window{r: r, end: end, buf: make([]byte, 0, 4<<10)}
}

// bytes returns the n bytes at off, which must lie before end and be at most windowLen. They are valid until
// the next call.
func (w *window) bytes(off int64, n int) ([]byte, error) {
	if off < w.off || off+int64(n) > w.off+int64(len(w.buf)) {
		if err := w.fill(off, n); err != nil {
			return nil, err
		}
	}
	return w.buf[off-w.off:][:n], nil
}

// rest returns the bytes in the window from off on, at least n, under the same conditions.
func (w *window) rest(off int64, n int) ([]byte, error) {
	if _, err := w.bytes(off, n); err != nil {
		return nil, err
	}
	return w.buf[off-w.off:], nil
}

// fill reads from off on, at least n bytes.
func (w *window) fill(off int64, n int) error {
	if n > cap(w.buf) {
		w.buf = make([]byte, 0, n)
	}
	w.off = off
	w.buf = w.buf[:min(int64(cap(w.buf)), w.end-off)]
	got, err := w.r.ReadAt(w.buf, off)
	w.buf = w.buf[:got]
	if got >= n {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read capture file at offset %d: %w", off, err)
}
