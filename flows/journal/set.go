package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/newfile"
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

// ErrInUse says that another process writes a log.
var ErrInUse = errors.New("another process writes it (stop the flow first)")

// DamagedSuffix is what the name of a file gets of which nothing can be had back.
const DamagedSuffix = ".damaged"

// Apply mends the log as it is planned. Done in part, by a crash, it can be planned and applied again.
func (r *Repair) Apply() error {
	err := r.apply()
	if err != nil {
		err = fmt.Errorf("repair log %s: %w", r.log.path, err)
	}
	return err
}

func (r *Repair) apply() error {
	if on, ok := r.ring(); ok {
		return r.applyToRing(on)
	}
	return r.applyToFiles()
}

// applyToFiles holds the files that it changes, so that no flow begins with them meanwhile.
func (r *Repair) applyToFiles() (err error) {
	d, base, err := newfile.Open(r.log.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	f, err := d.OpenFile(base+ManifestSuffix, os.O_RDWR)
	if err == nil {
		defer f.Close()
		err = lock(f)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, made := range r.Heads {
		if err := putHead(d, made); err != nil {
			return err
		}
	}
	for _, one := range r.GivenUp {
		if err := setAside(d, one); err != nil {
			return err
		}
	}
	if err := d.Sync(); err != nil {
		return err
	}
	if f == nil { // the segments' owner is the log's
		k, err := KeepFile(d, base+ManifestSuffix, r.now, r.sameOwner)
		if err != nil {
			return err
		}
		return k.Close()
	}
	return r.writeManifest(f, 0)
}

// writeManifest has both slots hold the manifest, one durably before the other.
func (r *Repair) writeManifest(f ring.File, base int64) error {
	k := &Keeper{file: f, base: base, now: r.now, durable: r.now.Generation}
	for range copies[:2] {
		if err := k.Update(true, func(*Manifest) {}); err != nil {
			return err
		}
	}
	return nil
}

// lock holds an open file as flows hold theirs.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", f.Name(), ErrInUse)
	}
	return nil
}

// putHead writes the head of a file, durably.
func putHead(d *newfile.Dir, made Rebuilt) error {
	f, err := d.OpenFile(filepath.Base(made.piece.path), os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil {
		return err
	}
	if _, err := f.WriteAt(made.piece.head, 0); err != nil {
		return fmt.Errorf("write the head of %s: %w", made.Name, err)
	}
	return f.Sync()
}

// setAside gives a file, if it is there, a name that is no segment's.
func setAside(d *newfile.Dir, one *Damage) error {
	name := filepath.Base(one.Name)
	f, err := d.OpenFile(name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil {
		return err
	}
	return d.Rename(name, name+DamagedSuffix)
}

// sameOwner gives a file to who owns the segments.
func (r *Repair) sameOwner(f *os.File) error {
	all, err := r.log.set.list(0)
	if err != nil || len(all) == 0 {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(all[len(all)-1].path, &st); err != nil {
		return err
	}
	return errors.Join(f.Chmod(os.FileMode(st.Mode&0o777)), f.Chown(int(st.Uid), int(st.Gid)))
}

// applyToRing claims the device as flows do.
func (r *Repair) applyToRing(on *rings) (err error) {
	flags := os.O_RDWR
	if info, err := on.file.Stat(); err == nil && info.Mode()&os.ModeDevice != 0 {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(on.file.Name(), flags, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s: %w", on.file.Name(), ErrInUse)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, made := range r.Heads {
		slot := on.Slot(f, made.Segment)
		if _, err := slot.WriteAt(made.piece.head, 0); err != nil {
			return fmt.Errorf("write the head of %s: %w", made.Name, err)
		}
		if err := slot.Sync(); err != nil {
			return err
		}
	}
	return r.writeManifest(f, ring.ManifestOffset)
}
