package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// Log is a log on disk, opened for reading.
type Log struct {
	path    string
	set     set
	durable uint64 // every record before this position was durable when the log was opened
	runs    []Run  // of the manifest
	group   bool   // it is a group's: records are part of the log when they are committed
	planned bool   // it has a manifest
}

// Open opens a log. PATH is the prefix of the names of its segments (to.file of the flow), a device
// with a ring, or a single segment. A log without segments is not an error.
func Open(path string) (*Log, error) {
	s, err := openSet(path)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	l := &Log{path: path, set: s}
	m, _, err := s.manifest()
	switch {
	case err == nil:
		l.set, l.durable, l.runs, l.group, l.planned = known{s}, m.Next, m.Runs, m.Flags&FlagGroup != 0, true
	case errors.Is(err, errManifest):
		l.set, l.group, l.planned = known{s}, isGrouped(s), true
	case errors.Is(err, errNoManifest):
		l.group = isGrouped(s)
	default:
		return nil, errors.Join(fmt.Errorf("open log %s: %w", path, err), s.Close())
	}
	return l, nil
}

// Exists reports whether there was anything of the log when it was opened: a manifest or a segment. What a log is,
// such as a group's, is not known before.
func (l *Log) Exists() (bool, error) {
	if l.planned {
		return true, nil
	}
	all, err := l.set.list(0)
	return len(all) > 0, err
}

// isGrouped reports whether the newest segment that can be read is of a group's log.
func isGrouped(s set) bool {
	all, err := s.list(0)
	if err != nil {
		return false // a Reader reports it
	}
	for _, p := range slices.Backward(all) {
		one, err := s.open(p)
		if err != nil {
			continue
		}
		_ = one.Close() // opened for reading only
		return one.form == grouped
	}
	return false
}

// known is the set of a log that has a manifest. In such a log, a file that looks like a capture is
// a segment with a damaged head.
type known struct{ set }

func (k known) open(p piece) (*segment, error) {
	s, err := k.set.open(p)
	if errors.Is(err, errNotLog) {
		err = &headError{err}
	}
	return s, err
}

// Damage returns what the log's manifest names and does not exist, and heads that cannot be read.
// Readers skip such segments.
func (l *Log) Damage() ([]*Damage, error) {
	_, all, err := l.check()
	if err != nil {
		return nil, fmt.Errorf("look at log %s: %w", l.path, err)
	}
	return all, nil
}

// Close closes the log. Its Readers must be closed before.
func (l *Log) Close() error { return l.set.Close() }

// Reader makes a reader that begins at position from; 0 means the oldest record. In a group's log it
// returns committed records only.
func (l *Log) Reader(from uint64) *Reader {
	r := l.all(from)
	if l.group {
		r.committed = 1 // it looks at the manifest before it returns the first record
	}
	return r
}

// Uncommitted is a Reader that also returns records of a group's log that are not committed. They may
// be cut off later.
func (l *Log) Uncommitted(from uint64) *Reader { return l.all(from) }

func (l *Log) all(from uint64) *Reader {
	return &Reader{set: l.set, next: from, seeking: from > 0, void: never, durableBefore: l.durable, origins: map[uint64]origin{}, planned: l.runs, before: never, committed: never}
}

// files is the segments with a common prefix of their names.
type files struct {
	pcapng.Names
	prefix string
	read   func() ([]pcapng.Named, error) // reads the directory; tests exchange it
}

func newFiles(prefix string) *files {
	names := pcapng.NewNames(prefix)
	return &files{names, prefix, names.List}
}

// list reads the directory twice if a segment seems to be missing. A flow renames a segment when it begins it, and
// whoever reads the directory meanwhile may find neither name, but the next segment. A reader that took that for
// the truth would go on behind records that are there. A segment is renamed once: one of the two finds it.
func (s *files) list(from uint64) ([]piece, error) {
	found, err := s.read()
	if err == nil && lacks(found, from) {
		var again []pcapng.Named
		again, err = s.read()
		found = merge(found, again)
	}
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	var all []piece
	for _, f := range found {
		if number := uint64(f.Number); number >= from {
			all = append(all, piece{number: number, name: f.Path, path: f.Path, ahead: f.Prepared})
		}
	}
	return all, nil
}

// lacks reports whether a segment from a number on seems to be missing before another one. The first one of all has
// been begun before another is prepared, unless it is number 1.
func lacks(found []pcapng.Named, from uint64) bool {
	next := from
	for _, f := range found {
		number := uint64(f.Number)
		switch {
		case number < from:
			continue
		case next == 0 && f.Prepared && number > 1, next > 0 && number > next:
			return true
		}
		next = number + 1
	}
	return false
}

// merge returns what at least one of two lists has, by number. A prepared segment that has got its other name between
// them is there once.
func merge(a, b []pcapng.Named) []pcapng.Named {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b pcapng.Named) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Path, b.Path))
	})
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(f pcapng.Named) bool {
		return f.Prepared && slices.ContainsFunc(all, func(g pcapng.Named) bool { return g.Number == f.Number && !g.Prepared })
	})
}

// openRegular opens a regular file for reading. For anything else, such as a named pipe on which
// open(2) would block, it returns an error that names the type.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file: %v", path, info.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openFile opens a file and returns its length.
func openFile(path string) (f *os.File, size int64, err error) {
	if f, err = openRegular(path); err != nil {
		return nil, 0, err
	}
	if size, err = f.Seek(0, io.SeekEnd); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

func (s *files) open(p piece) (*segment, error) {
	f, err := openRegular(p.path)
	if errors.Is(err, fs.ErrNotExist) && p.ahead {
		f, err = s.openBegun(&p)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errAbsent, err)
	}
	if err != nil {
		return nil, err
	}
	size := func() (int64, error) { return f.Seek(0, io.SeekEnd) }
	opened, err := newSegment(p, f, f, size, false)
	if err == nil {
		opened.idle = func() bool { return unlocked(f) }
	}
	return opened, err
}

// openBegun opens a segment that was prepared when it was listed, and that the flow has renamed since.
func (s *files) openBegun(p *piece) (*os.File, error) {
	found, err := s.read()
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	for _, f := range found {
		if uint64(f.Number) == p.number && !f.Prepared {
			p.name, p.path, p.ahead = f.Path, f.Path, false
			return openRegular(f.Path)
		}
	}
	return nil, fs.ErrNotExist
}

// unlocked reports whether no flow holds the lock of a file.
func unlocked(f *os.File) bool {
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		return false
	}
	return unix.Flock(int(f.Fd()), unix.LOCK_UN) == nil
}

func (s *files) bytes(p piece) (io.ReaderAt, int64, func() error, error) {
	f, size, err := openFile(p.path)
	if err != nil {
		return nil, 0, nil, err
	}
	return f, size, f.Close, nil
}

func (s *files) piece(number uint64) piece {
	name := fmt.Sprintf("%s-...-%06d.pcapng", s.prefix, number)
	return piece{number: number, name: name, path: name}
}

func (s *files) manifest() (Manifest, int, error) { return manifestOf(s.prefix) }

// suspects returns none: list finds all files by name.
func (s *files) suspects(*Manifest) ([]piece, error) { return nil, nil }

func (s *files) Close() error { return nil }

// one is a single segment file.
type one struct {
	files
	path string
}

func single(path string) *one { return &one{path: path} }

func (s *one) list(from uint64) ([]piece, error) {
	if from > 1 {
		return nil, nil
	}
	return []piece{s.piece(1)}, nil
}

func (s *one) piece(number uint64) piece { return piece{number: number, name: s.path, path: s.path} }

func (s *one) manifest() (Manifest, int, error) { return Manifest{}, 0, errNoManifest }
