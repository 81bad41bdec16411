package segment

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

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
