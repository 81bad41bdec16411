package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// ICRCBytes is the length of the trailer.
const ICRCBytes = 4

const (
	// residue is the CRC over anything that ends in its own CRC.
	residue ICRC = 0x2144df1c
	// afterOnes is the CRC's shift register, a CRC inverted, after the eight bytes of ones that stand for the InfiniBand header
	// that RoCE does not have.
	afterOnes uint32 = 0xdebb20e3
	// atOnce is the largest number of bytes that carryless processes. For more, hash/crc32 processes several blocks at once.
	atOnce = 256
)

// The bits that count as ones in the front of a packet, since they may change on the way: of the IP header, of the UDP
// checksum, and of FECN, BECN and the bits next to them. The front is a multiple of 16 bytes.
var (
	ones4 = [48]byte{1: 0xff, 8: 0xff, 10: 0xff, 11: 0xff, 26: 0xff, 27: 0xff, 32: 0xff}
	ones6 = [64]byte{0: 0x0f, 1: 0xff, 2: 0xff, 3: 0xff, 7: 0xff, 46: 0xff, 47: 0xff, 52: 0xff}
)

// le is the byte order of the ICRC.
var le = binary.LittleEndian

// ICRC is the invariant CRC of a packet up to some byte: CRC-32 of IEEE 802.3 over the packet from
// its IP header, with all fields that may change on the way as ones. IBTA specification, volume 1,
// annex A17.3.3; rxe_icrc.c. It is a value: several computations may continue from the same one.
//
//	c := wire.Begin(frame[t.Network():n]) // IP, UDP and all headers
//	c = c.Add(part1).Add(part2)           // the payload
//	n += c.Finish(trailer, header.Pad)    // padding and ICRC
type ICRC uint32

// Begin computes the CRC over packet, which begins with the IP header and has at least the base
// transport header and at most the whole packet. Its lengths must be the final ones. An IPv4 header
// must have no options. For a packet that is too short the ICRC is 0.
func Begin(packet []byte) ICRC {
	ones, least, n := ones4[:], ipv4Bytes+udpBytes+BTHBytes, len(packet)
	if n > 0 && packet[0]>>4 == 6 {
		ones, least = ones6[:], ipv6Bytes+udpBytes+BTHBytes
	}
	switch {
	case n < least:
		return 0
	case folds && n >= len(ones):
		if n >= atOnce {
			n = len(ones)
		}
		return ICRC(^carryless(afterOnes, &ones[0], len(ones), &packet[0], n)).Add(packet[n:])
	}
	r := afterOnes
	for i, b := range packet[:least] {
		r = crc32.IEEETable[byte(r)^(b|ones[i])] ^ r>>8
	}
	return ICRC(^r).Add(packet[least:])
}

// Add adds the bytes that follow in the packet.
func (c ICRC) Add(b []byte) ICRC { return ICRC(crc32.Update(uint32(c), crc32.IEEETable, b)) }

// Finish writes pad bytes of zeros and the ICRC to the front of b, and returns their number: at
// most 7.
func (c ICRC) Finish(b []byte, pad uint8) int {
	n, r := int(pad&padMask), ^uint32(c)
	for i := range n {
		b[i] = 0
		r = crc32.IEEETable[byte(r)] ^ r>>8
	}
	le.PutUint32(b[n:], ^r)
	return n + ICRCBytes
}

// Intact reports whether the ICRC was right. The CRC must cover the packet through its ICRC.
func (c ICRC) Intact() bool { return c == residue }

// Check reports whether the ICRC of a packet in one piece is right. The packet begins with the IP header and ends with the
// ICRC: frame[e.Network:e.Transport+e.Length].
func Check(packet []byte) bool { return Begin(packet).Intact() }
