package segment

import (
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// recoverRing mends the segments of a ring that were not closed, and returns the
// generation to go on with. Older ones than were ever open at once are closed.
func (s *Manager) recoverRing(d *ringDevice) (next uint64, err error) {
	all, err := d.Generations(d.file)
	if err != nil {
		return 0, err
	}
	damaged, err := d.Damaged(d.file, all, 0, 0)
	if err != nil {
		return 0, err
	}
	if s.unreadable = uint64(len(damaged)); s.unreadable > 0 {
		s.log.Error("heads of segments cannot be read: what is in them is left out", "path", s.to.Device, "segments", damaged)
	}
	next = 1
	for _, g := range all {
		next = g + 1
		if all[len(all)-1]-g > MaxOpen {
			continue
		}
		unused, err := s.recoverSlot(d, g)
		if err != nil {
			return 0, fmt.Errorf("recover segment %d: %w", g, err)
		}
		if unused {
			next = g
		}
	}
	if n := len(damaged); n > 0 { // its number is in batches that are there
		next = max(next, damaged[n-1]+1)
	}
	d.earlier = slices.DeleteFunc(all, func(g uint64) bool { return g >= next })
	s.newestBefore, err = d.newestTime()
	return next, err
}

// recoverSlot mends a segment unless it is closed. One that was prepared and never
// written to can be begun again; but not by the run after that it would have been the
// first of, which would number packets as that one did.
func (s *Manager) recoverSlot(d *ringDevice, generation uint64) (unused bool, err error) {
	c, err := pcapng.Closed(d.Slot(d.file, generation), int64(d.Size))
	if err != nil {
		return false, err
	}
	if c.Closed {
		return c.Batches == 0, nil
	}
	r, err := s.recoverSlotInPlace(d, generation)
	return r.Batches == 0 && r.Torn == 0 && !r.Ended && c.Head.Segment.FirstPacket != ring.Base(generation), err
}

// mendSlot recovers a segment in its slot and closes it.
func (s *Manager) recoverSlotInPlace(d *ringDevice, generation uint64) (pcapng.Report, error) {
	d.dropCaches()
	slot := d.Slot(d.file, generation)
	r, err := pcapng.Recover(slot, pcapng.Options{Numbered: true})
	if err != nil || r.Batches == 0 && r.Torn == 0 && !r.Ended {
		return r, err
	}
	r.Cut = 0 // what is behind the segment was never part of it
	path := fmt.Sprintf("%s segment %d", s.to.Device, generation)
	s.logReport(path, r)
	if r.Batches == 0 || r.Ended {
		return r, nil
	}
	if err := writeSlotEnd(slot, endMarker(r)); err != nil {
		s.log.Warn("a segment is mended and will be read again at the next start", "path", path, "why", err)
	}
	return r, nil
}

// completeSlot ends a segment of a ring.
func (s *Manager) sealSlot(full *Segment) error {
	generation := uint64(full.Number)
	if full.Damaged {
		_, err := s.recoverSlotInPlace(s.ring, generation)
		return err
	}
	return writeSlotEnd(s.ring.Slot(s.ring.file, generation), full.Batch(full.Next, full.Last.Packets))
}

// putEnd writes the mark that ends a segment of a ring, durably.
func writeSlotEnd(slot *ring.Slot, b pcapng.Batch) error {
	b.Length, b.Durable = b.Align, b.Offset
	end := make([]byte, b.Align)
	pcapng.PutEnd(end, &b)
	if _, err := slot.WriteAt(end, int64(b.Offset)); err != nil {
		return err
	}
	return slot.Sync()
}

// planSlot says which slot the segment of a generation goes to.
func (s *Manager) planSlot(generation int) *Segment {
	d := s.ring
	return &Segment{
		Number: generation, preparedPath: s.to.Device, Target: d.target, id: d.SegmentID(uint64(generation)),
		Base: d.Offset(uint64(generation)), size: d.Size, firstPacket: d.base,
	}
}

// reserveSlot waits until there is a slot that nobody writes any more, and reports
// false when the store closes meanwhile. Segments are completed in their order, so
// it is the next one's.
func (s *Manager) reserveSlot() bool {
	if s.ring == nil {
		return true
	}
	select {
	case s.ring.slots <- struct{}{}:
		return true
	case <-s.stop:
		return false
	}
}

// freeSlot says that a slot is written no more.
func (s *Manager) freeSlot() { <-s.ring.slots }
