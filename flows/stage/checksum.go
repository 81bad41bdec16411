package stage

import "encoding/binary"

var be = binary.BigEndian

// delta returns what is added to a sum when new bytes replace old ones of the same even length. A checksum is
// the complement of that sum (RFC 1624, equation 3). delta does not overflow for lengths up to 64 KiB.
func delta(old, new []byte) uint32 {
	var d uint32
	for i := 0; i+1 < len(old) && i+1 < len(new); i += 2 {
		d += uint32(^be.Uint16(old[i:])) + uint32(be.Uint16(new[i:]))
	}
	return d
}

// swapped converts the delta of bytes that begin at an odd offset of the summed data: their halves belong to
// other words (RFC 1071, byte order independence).
func swapped(d uint32) uint32 {
	s := fold(d)
	return uint32(s>>8 | s<<8)
}

// fold adds the carries back in.
func fold(d uint32) uint16 {
	d = d>>16 + d&0xffff
	return uint16(d>>16 + d)
}

// adjust changes the checksum at the beginning of field by a delta.
func adjust(field []byte, d uint32) {
	sum := uint32(^be.Uint16(field)) + uint32(fold(d))
	be.PutUint16(field, ^fold(sum))
}

// adjustUDP is adjust for UDP, where 0 means that there is no checksum.
func adjustUDP(field []byte, d uint32) {
	if be.Uint16(field) == 0 {
		return
	}
	if adjust(field, d); be.Uint16(field) == 0 {
		be.PutUint16(field, 0xffff)
	}
}
