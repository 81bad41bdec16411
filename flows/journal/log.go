package journal

import "fmt"

// Log is a log on disk, opened for reading.
type Log struct {
	path string
	set  set
}

// Open opens a log: PATH is what the names of its segments begin with (to.file of the flow), a device with a ring, or
// one segment alone. That there is nothing yet is no error.
func Open(path string) (*Log, error) {
	s, err := openSet(path)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	return &Log{path: path, set: s}, nil
}

// Close ends reading. The log's Readers are closed before.
func (l *Log) Close() error { return l.set.Close() }

// Reader reads records from a position on; 0 is the oldest there is.
func (l *Log) Reader(from uint64) *Reader {
	return &Reader{set: l.set, next: from, seeking: from > 0, void: never, origins: map[uint64]origin{}}
}
