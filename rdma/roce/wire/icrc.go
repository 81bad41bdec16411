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
	// longEnough is the length from which hash/crc32 uses the processor's CRC instructions, on
	// amd64.
	longEnough = 64
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
	ipv6 := len(packet) > 0 && packet[0]>>4 == 6
	if folds {
		switch {
		case ipv6 && len(packet) >= masked6:
			return foldFront(packet, &ones6[0], masked6)
		case !ipv6 && len(packet) >= masked4:
			return foldFront(packet, &ones4[0], masked4)
		}
	}
	switch {
	case ipv6 && len(packet) >= ipv6Bytes+udpBytes+BTHBytes:
		return ICRC(^beginIPv6(packet)).Add(packet[ipv6Bytes+udpBytes+8:])
	case !ipv6 && len(packet) >= ipv4Bytes+udpBytes+BTHBytes:
		return ICRC(^beginIPv4(packet)).Add(packet[ipv4Bytes+udpBytes+BTHBytes:])
	}
	return 0
}

// atOnce is the largest number of bytes that are processed block by block. For more, hash/crc32
// processes several blocks at once.
const atOnce = 256

// foldFront computes the CRC like Begin, for a packet in whose first masked bytes some are ones.
func foldFront(packet []byte, ones *byte, masked int) ICRC {
	if n := len(packet); n < atOnce {
		return ICRC(^carryless(uint32(afterOnes), ones, masked, &packet[0], n))
	}
	return ICRC(^carryless(uint32(afterOnes), ones, masked, &packet[0], masked)).Add(packet[masked:])
}

// Add adds the bytes that follow in the packet.
func (c ICRC) Add(b []byte) ICRC {
	if len(b) >= longEnough {
		return ICRC(crc32.Update(uint32(c), crc32.IEEETable, b))
	}
	r := ^register(c)
	for ; len(b) >= 8; b = b[8:] {
		r = r.word(le.Uint64(b))
	}
	if len(b) >= 4 {
		r, b = r.half(le.Uint32(b)), b[4:]
	}
	for _, v := range b {
		r = r.byte(v)
	}
	return ICRC(^r)
}

// Finish writes pad bytes of zeros and the ICRC to the front of b, and returns their number: at
// most 7.
func (c ICRC) Finish(b []byte, pad uint8) int {
	n, r := int(pad&padMask), ^register(c)
	for i := range n {
		b[i] = 0
		r = r.byte(0)
	}
	le.PutUint32(b[n:], uint32(^r))
	return n + ICRCBytes
}

// Intact reports whether the ICRC was right. The CRC must cover the packet through its ICRC.
func (c ICRC) Intact() bool { return c == residue }

// Check reports whether the ICRC of a packet in one piece is right. The packet begins with the IP header and ends with the
// ICRC: frame[e.Network:e.Transport+e.Length].
func Check(packet []byte) bool { return Begin(packet).Intact() }
