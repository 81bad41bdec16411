package wire

// beginIPv4 computes the CRC over IPv4, UDP and base transport header, in words of eight bytes, the
// first in the lowest bits. All bits that may change on the way count as ones.
func beginIPv4(p []byte) register {
	_ = p[ipv4Bytes+udpBytes+BTHBytes-1]
	r := afterOnes
	r = r.word(le.Uint64(p) | 0xff00)          // type of service
	r = r.word(le.Uint64(p[8:]) | 0xffff00ff)  // time to live, header checksum
	r = r.word(le.Uint64(p[16:]))              // destination address, UDP ports
	r = r.word(le.Uint64(p[24:]) | 0xffff0000) // UDP checksum
	return r.word(le.Uint64(p[32:]) | 0xff)    // FECN, BECN and the bits next to them
}

// beginIPv6 computes the same over IPv6, UDP and the first eight bytes of the base transport
// header.
func beginIPv6(p []byte) register {
	_ = p[ipv6Bytes+udpBytes+BTHBytes-1]
	r := afterOnes
	r = r.word(le.Uint64(p) | 0xff000000ffffff0f) // traffic class, flow label, hop limit
	r = r.word(le.Uint64(p[8:]))                  // addresses
	r = r.word(le.Uint64(p[16:]))
	r = r.word(le.Uint64(p[24:]))
	r = r.word(le.Uint64(p[32:]))
	r = r.word(le.Uint64(p[40:]) | 0xffff<<48)  // UDP checksum
	return r.word(le.Uint64(p[48:]) | 0xff<<32) // FECN, BECN and the bits next to them
}

// The bits that count as ones in the front of a packet, byte by byte.
const (
	masked4 = 48
	masked6 = 64
)

var (
	ones4 = [masked4]byte{1: 0xff, 8: 0xff, 10: 0xff, 11: 0xff, 26: 0xff, 27: 0xff, 32: 0xff}
	ones6 = [masked6]byte{0: 0x0f, 1: 0xff, 2: 0xff, 3: 0xff, 7: 0xff, 46: 0xff, 47: 0xff, 52: 0xff}
)
