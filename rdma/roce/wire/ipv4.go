package wire

import "github.com/unifiedd/unifiedd/rdma"

const (
	fragmentMask = 0x3fff // more fragments, and the offset
	dontFragment = 0x4000

	// mapped is the offset of an IPv4 address in a GID, after two bytes of ones.
	mapped = 12
)

// parseIPv4 reads the IPv4 and UDP headers in front of packet, which is length bytes long.
func (e *Envelope) parseIPv4(packet []byte, length int) Malformed {
	if len(packet) < ipv4Bytes+udpBytes {
		return FrameShort
	}
	total := int(be.Uint16(packet[2:]))
	switch {
	case packet[0]>>4 != 4:
		return IPVersion
	case packet[9] != protocolUDP:
		return NotRoCE
	case packet[0] > 0x45:
		return IPOptions
	case packet[0] < 0x45 || total < ipv4Bytes+udpBytes || total > length:
		return IPLength
	case be.Uint16(packet[6:])&fragmentMask != 0:
		return IPFragment
	case fold(sum(packet[:ipv4Bytes])) != 0xffff:
		return IPChecksum
	}
	e.TrafficClass, e.HopLimit = packet[1], packet[8]
	mapIPv4(&e.Source, packet[12:])
	mapIPv4(&e.Destination, packet[16:])
	return e.parseUDP(packet, ipv4Bytes, total-ipv4Bytes)
}

// mapIPv4 puts an IPv4 address into the last bytes of a GID that is zero.
func mapIPv4(gid *rdma.GID, address []byte) {
	gid[mapped-2], gid[mapped-1] = 0xff, 0xff
	copy(gid[mapped:], address[:4])
}

// isMapped reports whether a GID is an IPv4 address.
func isMapped(gid *rdma.GID) bool {
	return be.Uint64(gid[:]) == 0 && be.Uint32(gid[8:]) == 0xffff
}

// sum adds up the 16-bit words of b, whose length is a multiple of 4, two at a time. RFC 1071.
func sum(b []byte) (s uint64) {
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(be.Uint32(b))
	}
	return s
}

// fold reduces a sum to 16 bits.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s)
}
