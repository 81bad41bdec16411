package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// piece is a segment in a list.
type piece struct {
	number uint64
	name   string // for messages
	path   string // of a file
	ahead  bool   // it has the name of one that was prepared and not taken into use
	head   []byte // to be read in place of what it begins with; nil: nothing is
}

// set is where a log's segments are.
type set interface {
	// list is the segments with a number and later ones, oldest first; at least from that number on.
	list(from uint64) ([]piece, error)
	// open opens a segment. Where it is gone, or no segment yet, the error matches errAbsent.
	open(p piece) (*segment, error)
	// piece is the segment with a number, which need not be there.
	piece(number uint64) piece
	// bytes are those in place of a segment, whatever they are, and how many.
	bytes(p piece) (r io.ReaderAt, size int64, end func() error, err error)
	// manifest is the newest intact copy, and how many others are damaged. ErrNoManifest: there is none.
	manifest() (m Manifest, damaged int, err error)
	// suspects are pieces that no list has, and that are segments whose head is damaged. The manifest is nil where there is none.
	suspects(m *Manifest) ([]piece, error)
	io.Closer
}

// errAbsent says that there is no such segment.
var errAbsent = errors.New("there is no such segment")

// headError says that what is in place of a segment has no head that can be read. It matches errAbsent.
type headError struct{ cause error }

func (e *headError) Error() string        { return fmt.Sprintf("its head cannot be read: %v", e.cause) }
func (e *headError) Unwrap() error        { return e.cause }
func (e *headError) Is(target error) bool { return target == errAbsent }

// segment is one that is open for reading.
type segment struct {
	piece
	origin
	raw      io.ReaderAt
	walk     *pcapng.Walker
	numbered bool                  // it is on a ring
	leading  bool                  // there, it is the first of its run
	file     io.Closer             // nil: nothing to close
	size     func() (int64, error) // in bytes, now
	idle     func() bool           // nobody writes it; nil: not known
}

// newSegment begins to read a segment, and closes it where it cannot.
func newSegment(p piece, r io.ReaderAt, file io.Closer, size func() (int64, error), numbered bool) (*segment, error) {
	s := &segment{piece: p, file: file, size: size, numbered: numbered}
	if p.head != nil {
		r = patched{r, p.head}
	}
	s.raw = r
	err := s.begin(r)
	if err == nil {
		return s, nil
	}
	_ = s.Close() // nothing was written
	if errors.Is(err, pcapng.ErrNotSegment) {
		return nil, &headError{err}
	}
	return nil, fmt.Errorf("read %s: %w", p.name, err)
}

func (s *segment) begin(r io.ReaderAt) error {
	n, err := s.size()
	if err != nil {
		return err
	}
	if s.walk, err = pcapng.NewWalker(r, n, s.numbered); err != nil {
		return err
	}
	s.origin, err = originOf(s.walk.Head())
	return err
}

// follow takes note of what was written meanwhile.
func (s *segment) follow() error {
	n, err := s.size()
	if err == nil {
		s.walk.Grow(n)
	}
	return err
}

// gone is errAbsent where the slot of a ring got another segment meanwhile, and else the error.
func (s *segment) gone(err error) error {
	if errors.Is(err, pcapng.ErrReplaced) {
		return fmt.Errorf("%w: %s: %w", errAbsent, s.name, err)
	}
	return err
}

func (s *segment) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// patched is what begins with other bytes than are there.
type patched struct {
	r    io.ReaderAt
	head []byte
}

func (p patched) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.r.ReadAt(b, off)
	if off < int64(len(p.head)) {
		copy(b[:n], p.head[off:])
	}
	return n, err
}

// openSet finds out what a path means: a device or file with a ring, one segment, or what the names of segments begin with.
func openSet(path string) (set, error) {
	f, err := ring.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newFiles(path), nil
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		return newFiles(path), f.Close()
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	found, err := ring.Find(f, uint64(size))
	switch {
	case err == nil:
		return &rings{f, found.Ring}, nil
	case errors.Is(err, ring.ErrNone) && info.Mode().IsRegular():
		return single(path), f.Close()
	}
	return nil, errors.Join(err, f.Close())
}
