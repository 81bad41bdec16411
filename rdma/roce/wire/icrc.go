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
	// prefixed is the state of the CRC, as the polynomial sees it, after the eight bytes of
	// ones that stand for the InfiniBand header that RoCE does not have.
	prefixed = 0xdebb20e3
	// maxVaries is how far into a packet the last byte is that routers or cards may
	// change: byte 4 of the base transport header.
	maxVaries = ipv6Bytes + udpBytes + 5
)

// ICRC is the invariant CRC of a packet, as far as it was taken: CRC-32 of IEEE 802.3 over the packet from its
// IP header on, where all that may change on the way counts as ones. IBTA specification, volume 1, annex
// A17.3.3; rxe_icrc.c. It is a value: keep what was taken, and go on from there twice.
//
//	c := wire.Begin(frame[t.Network():n])  // IP, UDP and all headers
//	c = c.Add(part1).Add(part2)            // the payload
//	n += c.Finish(frame[n:], header.Pad)   // padding and ICRC
type ICRC uint32

// Begin takes the CRC over packet, which begins with the IP header and goes on at least through the base transport
// header, and at most to the packet's end. The lengths in it must be the final ones. IPv4 has no options here. What is
// too short to be a packet has the ICRC 0.
func Begin(packet []byte) ICRC {
	if len(packet) < ipv4Bytes+udpBytes+BTHBytes {
		return 0
	}
	return begin(packet)
}

// Add takes the CRC over what follows in the packet.
func (c ICRC) Add(b []byte) ICRC { return ICRC(crc32.Update(uint32(c), crc32.IEEETable, b)) }

// Finish writes pad bytes of zeros and the ICRC to the front of b, and returns how many bytes they are: at most 7.
func (c ICRC) Finish(b []byte, pad uint8) int {
	n := int(pad & padMask)
	clear(b[:n])
	c = c.Add(b[:n])
	binary.LittleEndian.PutUint32(b[n:], uint32(c))
	return n + ICRCBytes
}

// Intact says, once the CRC was taken over a packet through its ICRC, whether that was the right one.
func (c ICRC) Intact() bool { return c == residue }

// Check says whether the ICRC of a packet in one piece is right. The packet begins with the IP header and ends with the
// ICRC: frame[e.Network:e.Transport+e.Length].
func Check(packet []byte) bool { return Begin(packet).Intact() }

// begin copies what varies, makes it ones, and takes the CRC over the copy and the rest.
func begin(packet []byte) ICRC {
	var scratch [maxVaries]byte
	n := copy(scratch[:], packet)
	mask(&scratch)
	c := ICRC(^uint32(prefixed))
	return c.Add(scratch[:n]).Add(packet[n:])
}

// mask makes ones of what may change on the way.
func mask(packet *[maxVaries]byte) {
	udp := ipv4Bytes
	if packet[0]>>4 == 6 {
		udp = ipv6Bytes
		maskIPv6(packet[:])
	} else {
		maskIPv4(packet[:])
	}
	packet[udp+6], packet[udp+7] = 0xff, 0xff // checksum
	packet[udp+udpBytes+4] = 0xff             // FECN, BECN and the bits beside them
}

// maskIPv4 masks TOS, TTL and header checksum.
func maskIPv4(header []byte) {
	header[1], header[8], header[10], header[11] = 0xff, 0xff, 0xff, 0xff
}

// maskIPv6 masks traffic class, flow label and hop limit.
func maskIPv6(header []byte) {
	header[0] |= 0x0f
	header[1], header[2], header[3], header[7] = 0xff, 0xff, 0xff, 0xff
}
