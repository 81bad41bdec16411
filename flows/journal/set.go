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
	name   string // for errors and reports
	path   string // of a file
	ahead  bool   // it has the name of a prepared segment that is not in use yet
	head   []byte // replaces the beginning of the segment; nil: read it from the disk
}

// set is the place where a log has its segments.
type set interface {
	// list returns the segments with a number and later ones, oldest first. It may return earlier ones, too.
	list(from uint64) ([]piece, error)
	// open opens a segment. If it does not exist or is not a segment yet, the error matches
	// errAbsent.
	open(p piece) (*segment, error)
	// piece returns the segment with a number, which need not exist.
	piece(number uint64) piece
	// bytes returns the bytes in the place of a segment, whatever they are, and the size of the
	// place.
	bytes(p piece) (r io.ReaderAt, size int64, end func() error, err error)
	// manifest returns the newest intact copy, and how many others are damaged. errNoManifest: there is none.
	manifest() (m Manifest, damaged int, err error)
	// suspects returns segments that list does not return because their head is damaged. The
	// manifest is nil if there is none.
	suspects(m *Manifest) ([]piece, error)
	io.Closer
}

// errAbsent means that there is no such segment.
var errAbsent = errors.New("there is no such segment")

// headError means that the place of a segment has no head that can be read. It matches errAbsent.
type headError struct{ cause error }

func (e *headError) Error() string        { return fmt.Sprintf("its head cannot be read: %v", e.cause) }
func (e *headError) Unwrap() error        { return e.cause }
func (e *headError) Is(target error) bool { return target == errAbsent }

// segment is a segment that is open for reading.
type segment struct {
	piece
	origin
	raw      io.ReaderAt
	walk     *pcapng.Walker
	numbered bool                  // the segment is on a ring
	leading  bool                  // on a ring: it is the first of its run
	file     io.Closer             // nil: nothing to close
	size     func() (int64, error) // in bytes, now
	idle     func() bool           // no flow writes it; nil: not known
	used     bool                  // records were found in it
}

// newSegment begins to read a segment, and closes it if that fails.
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
	_ = s.Close() // opened for reading only
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

// follow updates the segment with data that was written since it was opened.
func (s *segment) follow() error {
	n, err := s.size()
	if err == nil {
		s.walk.Grow(n)
	}
	return err
}

// gone returns errAbsent if the slot of a ring now has another segment, otherwise the error.
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

// patched replaces the first bytes of a reader.
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

// openSet finds out what a path means: a device or file with a ring, one segment, or the prefix of
// segment names.
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

// errInUse means that another process writes a log.
var errInUse = errors.New("another process writes it (stop the flow first)")

// DamagedSuffix is appended to the name of a file that cannot be recovered.
const DamagedSuffix = ".damaged"

// Apply carries out the plan. If a crash interrupts it, the repair can be planned and applied
// again.
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

// applyToFiles locks the files that it changes, so that no flow can start with them.
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
	if f == nil { // give the manifest the owner of the segments
		k, err := KeepFile(d, base+ManifestSuffix, r.now, r.sameOwner)
		if err != nil {
			return err
		}
		return k.Close()
	}
	return r.writeManifest(f, 0)
}

// writeManifest writes the manifest to both slots, the first one durably before the second.
func (r *Repair) writeManifest(f ring.File, base int64) error {
	k := &Keeper{file: f, base: base, now: r.now, durable: r.now.Generation}
	for range copies[:2] {
		if err := k.Update(true, func(*Manifest) {}); err != nil {
			return err
		}
	}
	return nil
}

// lock locks an open file as flows do.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", f.Name(), errInUse)
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

// setAside renames a file, if it exists, to a name that no segment has.
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

// sameOwner gives a file the owner of the segments.
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
		return fmt.Errorf("%s: %w", on.file.Name(), errInUse)
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
