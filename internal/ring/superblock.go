package ring

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// SuperblockLen is the length in bytes of a superblock.
const SuperblockLen = 4096

// Byte offsets in a superblock. The CRC covers all bytes before its own.
const (
	posVersion = 8
	posID      = 16
	posDevice  = 24
	posSize    = 32
	posSlots   = 40
	posCRC     = SuperblockLen - 4

	magic   = "UNIFRING"
	version = 1
)

var (
	// ErrNone is matched when there is no ring.
	ErrNone = errors.New("there is no capture ring")
	// ErrDamaged is matched when there is a ring, but both its superblock and the copy are damaged.
	ErrDamaged = errors.New("the superblock of the capture ring and its copy are damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r Ring) encode() []byte {
	b := make([]byte, SuperblockLen)
	copy(b, magic)
	le.PutUint32(b[posVersion:], version)
	copy(b[posID:], r.ID[:])
	le.PutUint64(b[posDevice:], r.Device)
	le.PutUint64(b[posSize:], r.Size)
	le.PutUint64(b[posSlots:], r.Slots)
	le.PutUint32(b[posCRC:], crc32.Checksum(b[:posCRC], castagnoli))
	return b
}

// decode reads a superblock. device is the size of the device in bytes.
func decode(b []byte, device uint64) (r Ring, err error) {
	switch {
	case string(b[:len(magic)]) != magic:
		return r, ErrNone
	case crc32.Checksum(b[:posCRC], castagnoli) != le.Uint32(b[posCRC:]):
		return r, errors.New("wrong checksum")
	case le.Uint32(b[posVersion:]) != version:
		return r, fmt.Errorf("version %d is not known here", le.Uint32(b[posVersion:]))
	}
	copy(r.ID[:], b[posID:])
	r.Device, r.Size, r.Slots = le.Uint64(b[posDevice:]), le.Uint64(b[posSize:]), le.Uint64(b[posSlots:])
	return r, r.check(device)
}

// copyAt returns the offset of the superblock's copy on a device of device bytes.
func copyAt(device uint64) int64 { return int64(device - SuperblockLen) }

// Found is a ring found on a device.
type Found struct {
	Ring
	Damage error // the fault of the superblock or its copy; nil: both are intact and equal
}

// Find finds the ring on a device of device bytes. Without a ring the error matches ErrNone.
// ErrDamaged means that there is a ring whose superblocks are not readable.
func Find(f io.ReaderAt, device uint64) (Found, error) {
	if device < 2*margin {
		return Found{}, ErrNone
	}
	r, first, err := read(f, 0, device)
	if err != nil {
		return Found{}, err
	}
	if first == nil {
		again, second, err := read(f, copyAt(r.Device), device)
		if err == nil && second == nil && again != r {
			second = errors.New("it is another ring's")
		}
		return Found{r, about("the copy of the superblock", second)}, err
	}
	r, second, err := read(f, copyAt(device), device)
	switch {
	case err != nil:
		return Found{}, err
	case second == nil:
		return Found{r, about("the superblock", first)}, nil
	case errors.Is(first, ErrNone) && errors.Is(second, ErrNone):
		return Found{}, ErrNone
	}
	return Found{}, fmt.Errorf("%w: %w", ErrDamaged, errors.Join(about("the superblock", first), about("the copy", second)))
}

func about(what string, bad error) error {
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, bad)
}

// read reads the superblock at an offset. bad is a fault in it, err a read error.
func read(f io.ReaderAt, at int64, device uint64) (r Ring, bad, err error) {
	b := make([]byte, SuperblockLen)
	if _, err := f.ReadAt(b, at); err != nil {
		return r, nil, fmt.Errorf("read the superblock at offset %d: %w", at, err)
	}
	r, bad = decode(b, device)
	return r, bad, nil
}

// File is a device with a ring.
type File interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// Create makes a ring, with a new id, on a device of device bytes. It overwrites both ends of the device. It
// leaves the slots, since nothing in them has the new id.
func Create(f File, device, segment uint64) (Ring, error) {
	r, err := plan(device, segment)
	if err != nil {
		return r, err
	}
	if _, err := rand.Read(r.ID[:]); err != nil {
		return r, fmt.Errorf("draw the id of a ring: %w", err)
	}
	empty := make([]byte, margin)
	for _, at := range []int64{0, int64(device - margin)} {
		if _, err := f.WriteAt(empty, at); err != nil {
			return r, fmt.Errorf("make a ring: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return r, fmt.Errorf("make a ring: %w", err)
	}
	return r, r.Mend(f)
}

// Mend rewrites the superblock and its copy where they are damaged. It makes one durable before it writes the
// other.
func (r Ring) Mend(f File) error {
	b, found := r.encode(), make([]byte, SuperblockLen)
	for _, at := range []int64{copyAt(r.Device), 0} {
		if _, err := f.ReadAt(found, at); err == nil && bytes.Equal(found, b) {
			continue
		}
		if _, err := f.WriteAt(b, at); err != nil {
			return fmt.Errorf("write the superblock at offset %d: %w", at, err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("write the superblock at offset %d: %w", at, err)
		}
	}
	return nil
}
