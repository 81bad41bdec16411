package ring

import (
	"errors"
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// Slot is a slot of a ring as a separate file: it gives no access to bytes outside. It is a pcapng.File.
type Slot struct {
	f    File
	base int64
	size int64
}

// Slot returns the slot of a generation.
func (r Ring) Slot(f File, generation uint64) *Slot {
	return &Slot{f: f, base: int64(r.Offset(generation)), size: int64(r.Size)}
}

// ReadAt implements io.ReaderAt.
func (s *Slot) ReadAt(p []byte, off int64) (int, error) {
	return io.NewSectionReader(s.f, s.base, s.size).ReadAt(p, off)
}

// WriteAt implements io.WriterAt. It refuses to write beyond the slot.
func (s *Slot) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off {
		return 0, fmt.Errorf("write %d bytes at offset %d of a slot of %d bytes: it is too short", len(p), off, s.size)
	}
	return s.f.WriteAt(p, s.base+off)
}

// errSeek means that a device cannot report which parts were written.
var errSeek = errors.New("a slot has no holes")

// Seek can only find the slot's end.
func (s *Slot) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekEnd || offset != 0 {
		return 0, errSeek
	}
	return s.size, nil
}

// Truncate does nothing: a slot keeps its size.
func (s *Slot) Truncate(int64) error { return nil }

// Sync makes all writes durable.
func (s *Slot) Sync() error { return s.f.Sync() }

// Generations lists the generations of the segments on a ring, oldest first. It includes those whose head is
// intact and in its own slot.
func (r Ring) Generations(f io.ReaderAt) ([]uint64, error) {
	var found []uint64
	for slot := range r.Slots {
		head, err := pcapng.ReadHead(io.NewSectionReader(f, int64(r.Offset(slot)), int64(r.Size)), int64(r.Size))
		switch {
		case errors.Is(err, pcapng.ErrNotSegment):
			continue
		case err != nil:
			return nil, fmt.Errorf("read slot %d: %w", slot, err)
		}
		if g, ok := r.generation(head.Segment.ID); ok && g%r.Slots == slot && g < maxGeneration {
			found = append(found, g)
		}
	}
	return latest(found, r.Slots), nil
}

// maxGeneration bounds generations, so that adding one never overflows.
const maxGeneration = 1 << 62
