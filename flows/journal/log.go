package journal

import (
	"errors"
	"fmt"
)

// Log is a log on disk, opened for reading.
type Log struct {
	path     string
	set      set
	promised uint64 // every record in front of this position was durable when the log was opened
}

// Open opens a log: PATH is what the names of its segments begin with (to.file of the flow), a device with a ring, or
// one segment alone. That there is nothing yet is no error.
func Open(path string) (*Log, error) {
	s, err := openSet(path)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	l := &Log{path: path, set: s}
	m, _, err := s.manifest()
	switch {
	case err == nil:
		l.set, l.promised = known{s}, m.Next
	case errors.Is(err, ErrManifest):
		l.set = known{s}
	case !errors.Is(err, ErrNoManifest):
		return nil, errors.Join(fmt.Errorf("open log %s: %w", path, err), s.Close())
	}
	return l, nil
}

// known is where the segments of a log are that has a manifest: what is of a capture there has a head that is damaged.
type known struct{ set }

func (k known) open(p piece) (*segment, error) {
	s, err := k.set.open(p)
	if errors.Is(err, ErrNotLog) {
		err = &headError{err}
	}
	return s, err
}

// Damage is what the log's manifest says is there and is not, and heads that cannot be read. Reading leaves such segments out.
func (l *Log) Damage() ([]*Damage, error) {
	_, all, err := l.check()
	if err != nil {
		return nil, fmt.Errorf("look at log %s: %w", l.path, err)
	}
	return all, nil
}

// Close ends reading. The log's Readers are closed before.
func (l *Log) Close() error { return l.set.Close() }

// Reader reads records from a position on; 0 is the oldest there is.
func (l *Log) Reader(from uint64) *Reader {
	return &Reader{set: l.set, next: from, seeking: from > 0, void: never, promised: l.promised, origins: map[uint64]origin{}}
}
