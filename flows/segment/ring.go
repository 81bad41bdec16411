package segment

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/nvme"
)

// device is a ring of segments on a block device. The store owns it.
type ringDevice struct {
	ring.Ring
	target   *nvme.Target
	file     *os.File      // the same device, through the kernel's cache
	base     uint64        // number of the run's first packet
	first    uint64        // generation of this run
	created  bool          // the ring was made for this run
	earlier  []uint64      // generations of earlier runs, oldest first
	prepared atomic.Uint64 // the last generation whose head was written
	oldest   struct {      // the first packet's time of a generation
		sync.Mutex
		generation, ns uint64
	}
	slots chan struct{} // as many in it as slots are prepared, written or being completed
}

// passthrough reports whether segments go to an NVMe node.
func (s *Manager) Passthrough() bool { return s.ring != nil && s.ring.target.Passthrough() }

// Close closes the device.
func (d *ringDevice) Close() error { return errors.Join(d.file.Close(), d.target.Close()) }

// openDevice opens a flow's device, finds the ring on it or makes one, mends its
// segments and returns the generation to go on with.
func (s *Manager) openDevice() (generation int, err error) {
	target, err := nvme.OpenTarget(nvme.TargetConfig{Path: s.to.Device, Force: s.to.Force, Size: minSegment, Wait: lockTimeout})
	if err != nil {
		return 0, err
	}
	d := &ringDevice{target: target}
	if d.file, err = reopenBuffered(target); err != nil {
		return 0, errors.Join(err, target.Close())
	}
	d.dropCaches()
	next := uint64(1)
	if err = s.findRing(d); err == nil {
		next, err = s.recoverRing(d)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("device %s: %w", s.to.Device, err), d.Close())
	}
	d.first, d.base, d.slots = next, ring.Base(next), make(chan struct{}, d.Slots)
	s.ring = d
	return int(next), nil
}

// refresh forgets what the kernel has cached, which is old once commands to an NVMe
// node wrote past it. What it cannot forget is nothing we wrote.
func (d *ringDevice) dropCaches() { d.dropCache(0, 0) }

// forget is refresh for n bytes from an offset on; 0: up to the end.
func (d *ringDevice) dropCache(at, n uint64) { ring.Refresh(d.file, at, n) }

// findRing takes the ring that is on the device, or makes one where nothing is.
func (s *Manager) findRing(d *ringDevice) error {
	device, segment := d.target.Size(), uint64(s.to.Segment.Size)
	found, err := ring.Find(d.file, device)
	switch {
	case err == nil && found.Size == ring.SlotSize(segment):
		return s.continueRing(d, found)
	case err != nil && !errors.Is(err, ring.ErrNone) && !errors.Is(err, ring.ErrDamaged):
		return err
	case s.to.Force:
	case err == nil:
		return fmt.Errorf("%w: it holds a capture ring with segments of %d bytes, not %d (set segment.size to %dMiB to go on with it; or export it, and begin anew with force: true)",
			nvme.ErrDeviceNotEmpty, found.Size, ring.SlotSize(segment), found.Size>>20)
	case errors.Is(err, ring.ErrDamaged):
		return fmt.Errorf("%w: %w (copy the device away if the capture is needed, and begin anew with force: true)", nvme.ErrDeviceNotEmpty, err)
	case s.holdsCapture(d):
		return fmt.Errorf("%w: it holds a capture (copy it away, then allow to overwrite it with force: true)", nvme.ErrDeviceNotEmpty)
	}
	d.Ring, err = ring.Create(d.file, device, segment)
	d.created = true
	return err
}

// continueRing goes on with a ring. A damaged superblock is mended.
func (s *Manager) continueRing(d *ringDevice, found ring.Found) error {
	d.Ring = found.Ring
	if found.Damage == nil {
		return nil
	}
	if err := d.Mend(d.file); err != nil {
		return err
	}
	s.log.Warn("mended the superblock of a capture ring", "device", s.to.Device, "was", found.Damage)
	return nil
}

// sectionMagic is what every pcapng file begins with.
var sectionMagic = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// plainCapture reports whether a capture file is on the device.
func (s *Manager) holdsCapture(d *ringDevice) bool {
	var start [4]byte
	_, err := d.file.ReadAt(start[:], 0)
	return err == nil && bytes.Equal(start[:], sectionMagic)
}

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
