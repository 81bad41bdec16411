package ring

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

const (
	// Unit is the minimum size of a slot in bytes. Slots begin at multiples of it.
	Unit = 1 << 20
	// MinSlots is the minimum number of slots: one being written, one prepared and one to keep.
	MinSlots = 3
	// MaxSlot is the largest size of a slot in bytes. It holds fewer packets than a generation has numbers.
	MaxSlot = 2 << 40
	// ManifestOffset is the offset of a log's manifest on a device, before the slots.
	ManifestOffset = 64 << 10
	// margin is how many bytes at each end of the device have no slots.
	margin = 1 << 20
	// maxDevice bounds sizes, so that no sum of them overflows.
	maxDevice = 1 << 62
)

var le = binary.LittleEndian

// Ring is the geometry of a ring.
type Ring struct {
	ID     [8]byte // random
	Device uint64  // bytes of the device when the ring was made
	Size   uint64  // bytes of a slot
	Slots  uint64
}

// SlotSize returns the size of slots for segments of segment bytes.
func SlotSize(segment uint64) uint64 { return (segment + Unit - 1) &^ (Unit - 1) }

// errTooSmall is matched when a device has no room for a ring.
var errTooSmall = errors.New("too small for a ring of segments")

// plan returns the ring that fits a device of device bytes, without an id.
func plan(device, segment uint64) (Ring, error) {
	size := SlotSize(segment)
	switch {
	case segment == 0 || segment > MaxSlot:
		return Ring{}, fmt.Errorf("segments of %d bytes: from 1 to %d are possible", segment, uint64(MaxSlot))
	case device > maxDevice:
		return Ring{}, fmt.Errorf("a device of %d bytes: at most %d are possible", device, uint64(maxDevice))
	case device < 2*margin+MinSlots*size:
		return Ring{}, fmt.Errorf("%w: it has %d bytes, and %d segments of %d bytes need %d (%s)",
			errTooSmall, device, MinSlots, size, 2*margin+MinSlots*size, smaller(device))
	}
	return Ring{Device: device, Size: size, Slots: (device - 2*margin) / size}, nil
}

// smaller suggests a size that would fit.
func smaller(device uint64) string {
	if device < 2*margin+MinSlots*Unit {
		return "use a larger device"
	}
	return fmt.Sprintf("use smaller segments, of %d bytes at most, or a larger device", (device-2*margin)/MinSlots&^(Unit-1))
}

// check returns an error if no ring on a device of device bytes can have this geometry.
func (r Ring) check(device uint64) error {
	switch {
	case r.Device > maxDevice || r.Size < Unit || r.Size > MaxSlot || r.Size%Unit != 0 || r.Slots < MinSlots ||
		r.Device < 2*margin || r.Slots > (r.Device-2*margin)/r.Size:
		return errors.New("impossible sizes")
	case r.Device > device:
		return fmt.Errorf("the ring was made on a device of %d bytes, and this one has %d", r.Device, device)
	}
	return nil
}

// Offset returns where the slot of a generation begins on the device.
func (r Ring) Offset(generation uint64) uint64 { return margin + generation%r.Slots*r.Size }

// SegmentID returns the id of a generation's segment.
func (r Ring) SegmentID(generation uint64) (id pcapng.SegmentID) {
	copy(id[:8], r.ID[:])
	le.PutUint64(id[8:], generation)
	return id
}

// generation returns the generation in a segment's id; ok is false for an id of another ring.
func (r Ring) generation(id pcapng.SegmentID) (g uint64, ok bool) {
	return le.Uint64(id[8:]), [8]byte(id[:8]) == r.ID
}

// A packet's number consists of the generation that its run began with, and a count. Numbers stay below 2^62,
// as pcapng requires.
const (
	countBits      = 36
	generationBits = 25
)

// Base returns the number of the first packet of a run that begins with a generation. Numbers repeat after
// 2^25 generations. By then no packet that old is left at their places.
func Base(generation uint64) uint64 { return generation & (1<<generationBits - 1) << countBits }

// minPacket is less than any packet with a number takes in a slot.
const minPacket = 32

// Again returns the number of the first packet of a run that begins in a slot which an earlier run has begun with the number
// first, and ended without a whole batch in it. Parts of batches may be there. So the new run leaves out the numbers that
// they may have. ok is false if too few would be left: then the run begins in the next slot.
func (r Ring) Again(first, generation uint64) (number uint64, ok bool) {
	room := r.Size / minPacket
	number = first + room
	return number, number+room <= Base(generation)+1<<countBits
}

// Began reports whether the run whose first packet has a number began with a generation.
func Began(first, generation uint64) bool { return first>>countBits == Base(generation)>>countBits }
