package fabrics

// Place is the place of a command's data.
type Place uint8

const (
	// Nowhere: the command has no data.
	Nowhere Place = iota
	// InHost data is in the host's memory. RDMA reaches it by address and key.
	InHost
	// InCapsule data follows the command.
	InCapsule
)

// Data is the one SGL descriptor of a command.
type Data struct {
	Place      Place
	Invalidate bool   // the response must invalidate the host's key (SEND with invalidate)
	Length     uint32 // bytes
	Key        uint32
	Address    uint64 // in the host's memory, or the offset after the command in the capsule
}

// Types of SGL descriptors with their subtypes.
const (
	sglOffset          = 0x0<<4 | 0x1 // data block, address is an offset in the capsule
	sglKeyed           = 0x4 << 4
	sglKeyedInvalidate = 0x4<<4 | 0xf
)

// dataOf decodes a descriptor. Commands without data have one that is all zeros, or a keyed one
// with no bytes.
func dataOf(b []byte) (Data, Status) {
	d := Data{Address: le.Uint64(b)}
	switch b[15] {
	case sglKeyed, sglKeyedInvalidate:
		d.Place, d.Invalidate = InHost, b[15] == sglKeyedInvalidate
		d.Length = uint32(b[8]) | uint32(b[9])<<8 | uint32(b[10])<<16
		d.Key = le.Uint32(b[11:])
		if d.Address+uint64(d.Length) < d.Address {
			return Data{}, InvalidSGLLength | DoNotRetry
		}
	case sglOffset:
		d.Place, d.Length = InCapsule, le.Uint32(b[8:])
	default:
		if [16]byte(b) != [16]byte{} {
			return Data{}, InvalidSGLType | DoNotRetry
		}
	}
	if d.Length == 0 {
		d = Data{Invalidate: d.Invalidate, Key: d.Key}
	}
	return d, Success
}

// CheckCapsule checks in-capsule data against the number of bytes after the command.
func (d *Data) CheckCapsule(bytes uint32) Status {
	switch {
	case d.Place != InCapsule:
		return Success
	case d.Address != 0:
		return InvalidSGLOffset | DoNotRetry
	case d.Length > bytes:
		return InvalidSGLLength | DoNotRetry
	}
	return Success
}
