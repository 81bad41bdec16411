package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// files are the segments that begin with PREFIX: PREFIX-TIME-NUMBER.pcapng, and .PREFIX-NUMBER.next for one that was prepared
// ahead, which has records for as long as its name was not changed yet.
type files struct {
	dir         string
	final, next *regexp.Regexp
}

func newFiles(prefix string) *files {
	dir, base := filepath.Split(prefix)
	if dir == "" {
		dir = "."
	}
	quoted := regexp.QuoteMeta(base)
	return &files{
		dir:   dir,
		final: regexp.MustCompile(`^` + quoted + `-\d{8}T\d{6}Z-(\d{6,15})\.pcapng$`),
		next:  regexp.MustCompile(`^\.` + quoted + `-(\d{6,15})\.next$`),
	}
}

func (s *files) list(from uint64) ([]piece, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	var all []piece
	for _, e := range entries {
		if number, ok := s.numberOf(e); ok && number >= from {
			path := filepath.Join(s.dir, e.Name())
			all = append(all, piece{number, path, path})
		}
	}
	slices.SortFunc(all, func(a, b piece) int { return int(a.number) - int(b.number) }) // of at most 15 digits
	return all, nil
}

// numberOf is what a name says; ok is false for what is no segment. What is no file of its own, a link even, is somebody else's.
func (s *files) numberOf(e fs.DirEntry) (n uint64, ok bool) {
	if !e.Type().IsRegular() {
		return 0, false
	}
	m := s.final.FindStringSubmatch(e.Name())
	if m == nil {
		m = s.next.FindStringSubmatch(e.Name())
	}
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n, err == nil
}

func (s *files) open(p piece) (*segment, error) {
	f, err := os.Open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errAbsent, err)
	}
	if err != nil {
		return nil, err
	}
	size := func() (int64, error) { return f.Seek(0, io.SeekEnd) }
	return newSegment(p, f, f, size, false)
}

func (s *files) Close() error { return nil }

// one is a single segment file.
type one struct {
	files
	piece
}

func single(path string) *one { return &one{piece: piece{1, path, path}} }

func (s *one) list(from uint64) ([]piece, error) {
	if from > s.number {
		return nil, nil
	}
	return []piece{s.piece}, nil
}
