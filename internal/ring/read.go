package ring

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// latest sorts generations, and removes those that were overwritten before the newest began. Their heads can
// still exist only if the disk did not obey a flush.
func latest(all []uint64, slots uint64) []uint64 {
	slices.Sort(all)
	if len(all) == 0 {
		return nil
	}
	newest := all[len(all)-1]
	return slices.DeleteFunc(all, func(g uint64) bool { return newest-g >= slots })
}

// ErrOverwritten means that a segment was overwritten while it was read.
var ErrOverwritten = errors.New("the segment was overwritten during the call")

// Head returns the head of a generation's segment. The error is ErrOverwritten if its slot has
// another segment.
func (r Ring) Head(f io.ReaderAt, generation uint64) (pcapng.Head, error) {
	head, err := pcapng.ReadHead(r.section(f, generation), int64(r.Size))
	if errors.Is(err, pcapng.ErrNotSegment) || err == nil && head.Segment.ID != r.SegmentID(generation) {
		return head, ErrOverwritten
	}
	return head, err
}

// remainsLen is how many bytes of a slot are searched for the rest of a segment without a head.
const remainsLen = 256 << 10

// Remains returns the newest generation that has batches at the beginning of a generation's slot, whatever
// the slot's head is; ok is false if there are none.
func (r Ring) Remains(f io.ReaderAt, generation uint64) (g uint64, ok bool, err error) {
	err = pcapng.EachMark(r.section(f, generation), int64(min(r.Size, remainsLen)), func(b pcapng.Batch) bool {
		if b.Sequence == 1 && b.Packets == 0 {
			return true // it ends a segment that was never used
		}
		if is, ours := r.generation(b.Segment); ours && is%r.Slots == generation%r.Slots && is < maxGeneration {
			g, ok = max(g, is), true
		}
		return true
	})
	return g, ok, err
}

// Damaged returns the generations of slots that have batches and no readable head. found has the
// generations with a head, in order; generations older than oldest are left out. The rest of a
// segment that was overwritten, or that is older than the ring, does not count.
func (r Ring) Damaged(f io.ReaderAt, found []uint64, oldest, newest uint64) (all []uint64, err error) {
	if n := len(found); n > 0 {
		newest = max(newest, found[n-1])
	}
	last := newest + 2 // the segment in use and the one that is prepared may both be damaged
	for g := max(oldest, 1, newest+1-min(newest+1, r.Slots)); g <= last; g++ {
		if slices.Contains(found, g) {
			continue
		}
		if _, err := pcapng.ReadHead(r.section(f, g), int64(r.Size)); err == nil {
			continue // began during the call
		} else if !errors.Is(err, pcapng.ErrNotSegment) {
			return nil, err
		}
		left, ok, err := r.Remains(f, g)
		if err != nil {
			return nil, err
		}
		if ok && left == g {
			all = append(all, g)
		}
	}
	return all, nil
}

// Begin returns the time of the first packet in a generation's segment, in nanoseconds since the epoch. It is
// 0 if there is no packet yet, or the segment no longer exists.
func (r Ring) Begin(f io.ReaderAt, generation uint64) (uint64, error) {
	times, err := pcapng.FirstTime(r.section(f, generation), int64(r.Size))
	if errors.Is(err, pcapng.ErrNotSegment) || times.Segment != r.SegmentID(generation) {
		return 0, nil
	}
	return times.First, err
}

// Latest returns the time of the last packet in a generation's segment, in nanoseconds since the epoch; 0 if
// there are no packets. The segment must be complete.
func (r Ring) Latest(f io.ReaderAt, generation uint64) (uint64, error) {
	return pcapng.LatestTime(r.section(f, generation), int64(r.Size))
}

func (r Ring) section(f io.ReaderAt, generation uint64) *io.SectionReader {
	return io.NewSectionReader(f, int64(r.Offset(generation)), int64(r.Size))
}

// Read calls fn with the good batches of a generation's segment, as pcapng.Read does. Another process may
// write the ring during the call. Read passes a batch to fn only if, after it was read, the slot still has
// the segment's head, so that the batch is unchanged. Otherwise Read ends with ErrOverwritten. It also ends
// with fn's error.
func (r Ring) Read(f io.ReaderAt, generation uint64, fn func(b pcapng.Batch, data []byte) error) (pcapng.Report, error) {
	head, err := r.Head(f, generation)
	if err != nil {
		return pcapng.Report{}, err
	}
	found, now := make([]byte, head.Len), make([]byte, head.Len)
	if _, err := r.section(f, generation).ReadAt(found, 0); err != nil {
		return pcapng.Report{}, err
	}
	return pcapng.Read(r.section(f, generation), int64(r.Size), pcapng.Options{Numbered: true}, func(b pcapng.Batch, data []byte) error {
		if _, err := r.section(f, generation).ReadAt(now, 0); err != nil {
			return err
		}
		if b.Segment != r.SegmentID(generation) || !bytes.Equal(found, now) {
			return ErrOverwritten
		}
		return fn(b, data)
	})
}
