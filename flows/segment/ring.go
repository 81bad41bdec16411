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

// ringDevice is a ring of segments on a block device. The manager owns it.
type ringDevice struct {
	ring.Ring
	target   *nvme.Target
	file     *os.File      // the same device through the page cache
	base     uint64        // number of this run's first packet
	first    uint64        // first generation of this run
	created  bool          // by this run
	earlier  []uint64      // generations of earlier runs, oldest first
	prepared atomic.Uint64 // last generation whose head was written
	oldest   struct {      // time of the first packet of a generation
		sync.Mutex
		generation, ns uint64
	}
	slots chan struct{} // one element for each slot that is prepared, written or being sealed
}

// Passthrough reports whether segments are written by commands to an NVMe character device.
func (s *Manager) Passthrough() bool { return s.ring != nil && s.ring.target.Passthrough() }

// Close closes the device.
func (d *ringDevice) Close() error { return errors.Join(d.file.Close(), d.target.Close()) }

// openDevice opens a flow's device, finds or creates the ring on it, recovers its segments and
// returns the next generation.
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
	var next uint64
	if err = s.findRing(d); err == nil {
		next, d.base, err = s.recoverRing(d)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("device %s: %w", s.to.Device, err), d.Close())
	}
	d.first, d.slots = next, make(chan struct{}, d.Slots)
	s.ring = d
	return int(next), nil
}

// dropCaches drops the device's pages from the page cache. Commands to an NVMe character device
// bypass the cache, so its pages are stale. Dirty pages stay; the manager wrote none.
func (d *ringDevice) dropCaches() { d.dropCache(0, 0) }

// dropCache drops n bytes at an offset; n = 0 means up to the end.
func (d *ringDevice) dropCache(at, n uint64) { ring.Refresh(d.file, at, n) }

// findRing finds the ring on the device, or creates one where the device holds nothing.
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
		return fmt.Errorf("%w: it holds a capture ring with segments of %d bytes, not %d (set segment.size to %dMiB to continue it; or export it, and start over with force: true)",
			nvme.ErrDeviceNotEmpty, found.Size, ring.SlotSize(segment), found.Size>>20)
	case errors.Is(err, ring.ErrDamaged):
		return fmt.Errorf("%w: %w (copy the device if the capture is needed, and start over with force: true)", nvme.ErrDeviceNotEmpty, err)
	case s.holdsCapture(d):
		return fmt.Errorf("%w: it holds a capture (copy it away, then allow to overwrite it with force: true)", nvme.ErrDeviceNotEmpty)
	}
	d.Ring, err = ring.Create(d.file, device, segment)
	d.created = true
	return err
}

// continueRing continues an existing ring. It repairs a damaged superblock.
func (s *Manager) continueRing(d *ringDevice, found ring.Found) error {
	d.Ring = found.Ring
	if found.Damage == nil {
		return nil
	}
	if err := d.Mend(d.file); err != nil {
		return err
	}
	s.log.Warn("repaired the superblock of a capture ring", "device", s.to.Device, "was", found.Damage)
	return nil
}

// sectionMagic begins every pcapng file.
var sectionMagic = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// holdsCapture reports whether the device holds a capture file.
func (s *Manager) holdsCapture(d *ringDevice) bool {
	var start [4]byte
	_, err := d.file.ReadAt(start[:], 0)
	return err == nil && bytes.Equal(start[:], sectionMagic)
}

// recoverRing recovers the segments of a ring that were not sealed, and returns the next
// generation, and the number of its first packet. It reads only the newest MaxOpen segments: older
// ones are sealed.
func (s *Manager) recoverRing(d *ringDevice) (next, base uint64, err error) {
	all, err := d.Generations(d.file)
	if err != nil {
		return 0, 0, err
	}
	damaged, err := d.Damaged(d.file, all, 0, 0)
	if err != nil {
		return 0, 0, err
	}
	if s.unreadable = uint64(len(damaged)); s.unreadable > 0 {
		s.log.Error("heads of segments are not readable: their packets are left out", "path", s.to.Device, "segments", damaged)
	}
	next, base = 1, ring.Base(1)
	for _, g := range all {
		if next, base = g+1, ring.Base(g+1); all[len(all)-1]-g > MaxOpen {
			continue
		}
		again, unused, err := s.recoverSlot(d, g)
		if err != nil {
			return 0, 0, fmt.Errorf("recover segment %d: %w", g, err)
		}
		if unused {
			next, base = g, again
		}
	}
	if n := len(damaged); n > 0 && damaged[n-1] >= next { // its batches have that number
		next, base = damaged[n-1]+1, ring.Base(damaged[n-1]+1)
	}
	d.earlier = slices.DeleteFunc(all, func(g uint64) bool { return g >= next })
	s.newestBefore, err = d.newestTime()
	return next, base, err
}

// recoverSlot recovers a segment unless it is sealed. It reports whether the generation can be used
// again, as it has no batches, and with which number a run then begins. That is none that a packet
// of the slot may have.
func (s *Manager) recoverSlot(d *ringDevice, generation uint64) (base uint64, unused bool, err error) {
	c, err := pcapng.Closed(d.Slot(d.file, generation), int64(d.Size))
	if err != nil {
		return 0, false, err
	}
	base = ring.Base(generation)
	leads := ring.Began(c.Head.Segment.FirstPacket, generation)
	if leads {
		base = c.Head.Segment.FirstPacket
	}
	if c.Closed {
		return base, c.Batches == 0, nil
	}
	r, err := s.recoverSlotInPlace(d, generation)
	if unused = r.Batches == 0 && r.Torn == 0 && !r.Ended; unused && leads {
		base, unused = d.Again(base, generation)
		unused = unused && s.manifest == nil // the repair of a log relies on the number
	}
	return base, unused, err
}

// recoverSlotInPlace recovers a segment in its slot and seals it.
func (s *Manager) recoverSlotInPlace(d *ringDevice, generation uint64) (pcapng.Report, error) {
	d.dropCaches()
	slot := d.Slot(d.file, generation)
	r, err := pcapng.Recover(slot, pcapng.Options{Numbered: true})
	if err != nil || r.Batches == 0 && r.Torn == 0 && !r.Ended {
		return r, err
	}
	r.Cut = 0 // the rest of the slot was never part of the segment
	path := fmt.Sprintf("%s segment %d", s.to.Device, generation)
	s.logReport(path, r)
	if r.Batches == 0 || r.Ended {
		return r, nil
	}
	if err := writeSlotEnd(slot, endMarker(r)); err != nil {
		s.log.Warn("a recovered segment will be read again at the next start", "path", path, "err", err)
	}
	return r, nil
}

// sealSlot seals a segment of a ring.
func (s *Manager) sealSlot(full *Segment) error {
	generation := uint64(full.Number)
	if full.Damaged {
		_, err := s.recoverSlotInPlace(s.ring, generation)
		return err
	}
	return writeSlotEnd(s.ring.Slot(s.ring.file, generation), full.Batch(full.Next, full.Last.Packets))
}

// writeSlotEnd writes the end marker of a segment of a ring durably.
func writeSlotEnd(slot *ring.Slot, b pcapng.Batch) error {
	b.Length, b.Durable = b.Align, b.Offset
	end := make([]byte, b.Align)
	pcapng.PutEnd(end, &b)
	if _, err := slot.WriteAt(end, int64(b.Offset)); err != nil {
		return err
	}
	return slot.Sync()
}

// planSlot chooses the slot of a generation.
func (s *Manager) planSlot(generation int) *Segment {
	d := s.ring
	return &Segment{
		Number: generation, preparedPath: s.to.Device, Target: d.target, id: d.SegmentID(uint64(generation)),
		Base: d.Offset(uint64(generation)), size: d.Size, firstPacket: d.base,
	}
}

// reserveSlot waits until a slot is free. It returns false when the manager closes. Segments are
// sealed in order, so the free slot is that of the next generation.
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

// freeSlot frees a slot that is no longer written.
func (s *Manager) freeSlot() { <-s.ring.slots }
