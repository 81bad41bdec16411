package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// files are the segments that begin with a prefix.
type files struct{ pcapng.Names }

func newFiles(prefix string) *files { return &files{pcapng.NewNames(prefix)} }

func (s *files) list(from uint64) ([]piece, error) {
	found, err := s.List()
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	var all []piece
	for _, f := range found {
		if number := uint64(f.Number); number >= from {
			all = append(all, piece{number, f.Path, f.Path})
		}
	}
	return all, nil
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
