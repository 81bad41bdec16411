package ring

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

const (
	// Unit is what slots begin at multiples of, in bytes, and the least size of one.
	Unit = 1 << 20
	// MinSlots is the least number of slots: one being written, one prepared and one to be kept.
	MinSlots = 3
	// MaxSlot is the largest size of a slot in bytes. It holds fewer packets than a generation has numbers.
	MaxSlot = 2 << 40
	// ManifestOffset is where the manifest of a log lies on a device, in front of the slots.
	ManifestOffset = 64 << 10
	// margin is what is kept free of slots at both ends, in bytes.
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

// SlotSize returns the size of slots for segments of that many bytes.
func SlotSize(segment uint64) uint64 { return (segment + Unit - 1) &^ (Unit - 1) }

// errTooSmall is matched when a device has no room for a ring.
var errTooSmall = errors.New("too small for a ring of segments")

// plan is the ring that fits a device of so many bytes, without an id.
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

// smaller says what would fit.
func smaller(device uint64) string {
	if device < 2*margin+MinSlots*Unit {
		return "use a larger device"
	}
	return fmt.Sprintf("use smaller segments, of %d bytes at most, or a larger device", (device-2*margin)/MinSlots&^(Unit-1))
}

// check reports whether the geometry can be true of a device of so many bytes.
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

// Offset is where the slot of a generation begins on the device.
func (r Ring) Offset(generation uint64) uint64 { return margin + generation%r.Slots*r.Size }

// SegmentID is the id of a generation's segment.
func (r Ring) SegmentID(generation uint64) (id pcapng.SegmentID) {
	copy(id[:8], r.ID[:])
	le.PutUint64(id[8:], generation)
	return id
}

// generation is what a segment's id names; ok is false for one of another ring.
func (r Ring) generation(id pcapng.SegmentID) (g uint64, ok bool) {
	return le.Uint64(id[8:]), [8]byte(id[:8]) == r.ID
}

// A packet's number is the generation its run began with and a count. Numbers stay below 2^62, as pcapng wants them.
const (
	countBits      = 36
	generationBits = 25
)

// Base is the number of the first packet of a run that begins with a generation. Numbers come again after 2^25
// generations, at places where nothing that old is left.
func Base(generation uint64) uint64 { return generation & (1<<generationBits - 1) << countBits }
