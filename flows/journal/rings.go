package journal

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/ring"
)

// rings is the segments on a device.
type rings struct {
	file *os.File
	ring.Ring
}

func (s *rings) list(from uint64) ([]piece, error) {
	if _, err := s.Head(s.file, from); from > 0 && err == nil {
		return s.onward(from), nil
	}
	generations, err := s.Generations(s.file)
	if err != nil {
		return nil, err
	}
	var all []piece
	for _, g := range generations {
		if g >= from {
			all = append(all, s.piece(g))
		}
	}
	return all, nil
}

// onward returns the segments from a number on. Generations are consecutive.
func (s *rings) onward(from uint64) []piece {
	all := []piece{s.piece(from)}
	for g := from + 1; g-from < s.Slots; g++ {
		if _, err := s.Head(s.file, g); err != nil {
			break
		}
		all = append(all, s.piece(g))
	}
	return all
}

func (s *rings) piece(g uint64) piece {
	return piece{number: g, name: fmt.Sprintf("%s segment %d", s.file.Name(), g)}
}

func (s *rings) open(p piece) (*segment, error) {
	slot := io.NewSectionReader(s.file, int64(s.Offset(p.number)), int64(s.Size))
	size := func() (int64, error) {
		ring.Refresh(s.file, s.Offset(p.number), s.Size) // writes through an NVMe character device bypass the page cache
		return int64(s.Size), nil
	}
	opened, err := newSegment(p, slot, nil, size, true)
	if err != nil {
		return nil, err
	}
	head := opened.walk.Head().Segment
	if head.ID != s.SegmentID(p.number) {
		return nil, fmt.Errorf("%w: %s: %w", errAbsent, p.name, ring.ErrOverwritten)
	}
	opened.idle = s.idle
	opened.leading = head.FirstPacket == ring.Base(p.number)
	return opened, nil
}

// idle reports whether no flow has claimed the device.
func (s *rings) idle() bool {
	info, err := s.file.Stat()
	if err != nil || info.Mode()&os.ModeDevice == 0 {
		return err == nil
	}
	f, err := os.OpenFile(s.file.Name(), os.O_RDONLY|unix.O_EXCL, 0)
	return err == nil && f.Close() == nil
}

func (s *rings) bytes(p piece) (io.ReaderAt, int64, func() error, error) {
	end := func() error { return nil }
	return io.NewSectionReader(s.file, int64(s.Offset(p.number)), int64(s.Size)), int64(s.Size), end, nil
}

func (s *rings) manifest() (Manifest, int, error) {
	ring.Refresh(s.file, ring.ManifestOffset, ManifestSize)
	return readManifest(s.file, ring.ManifestOffset)
}

// suspects returns segments whose slot has batches and no head. It ignores old data: of an
// overwritten segment, or from before the slot belonged to the ring.
func (s *rings) suspects(m *Manifest) (all []piece, err error) {
	found, err := s.Generations(s.file)
	if err != nil {
		return nil, err
	}
	newest, oldest := uint64(0), uint64(1)
	if n := len(found); n > 0 { // a crash may have torn the head that was about to replace the oldest one
		oldest = found[n-1] + 2 - min(found[n-1]+1, s.Slots)
	}
	if m != nil {
		newest, oldest = m.Newest, m.Oldest
	}
	damaged, err := s.Damaged(s.file, found, oldest, newest)
	for _, g := range damaged {
		all = append(all, s.piece(g))
	}
	return all, err
}

func (s *rings) Close() error { return s.file.Close() }
