package fabrics

// Place is where a command's data is.
type Place uint8

const (
	// Nowhere: there is none.
	Nowhere Place = iota
	// InHost is memory of the host's, which RDMA reaches by address and key.
	InHost
	// InCapsule data follow the command.
	InCapsule
)

// Data is the one SGL descriptor of a command.
type Data struct {
	Place      Place
	Invalidate bool   // the host wants its key ended by the response (SEND with invalidate)
	Length     uint32 // bytes
	Key        uint32
	Address    uint64 // in the host; in the capsule the offset behind the command
}

// Types of SGL descriptors with their subtypes.
const (
	sglOffset          = 0x0<<4 | 0x1 // data block, address is an offset in the capsule
	sglKeyed           = 0x4 << 4
	sglKeyedInvalidate = 0x4<<4 | 0xf
)

// dataOf reads a descriptor. One that is all zeros is none: commands without data have that, or a keyed one of no bytes.
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
