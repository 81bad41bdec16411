package flows

import "encoding/binary"

// putGenerated writes the headers of a packet of length bytes that a generator makes: between two hosts that there are none of, of the addresses set
// aside for examples (RFC 5737), to the discard port. Its UDP checksum is left out, as IPv4 allows.
func putGenerated(b []byte, length uint32) {
	copy(b, generatedHeaders[:])
	ip, udp := uint16(length-14), uint16(length-34)
	binary.BigEndian.PutUint16(b[16:], ip)
	binary.BigEndian.PutUint16(b[24:], ^fold(generatedSum+uint32(ip)))
	binary.BigEndian.PutUint16(b[38:], udp)
}

// generatedHeaders are the headers but for lengths, checksum and source port.
var generatedHeaders = [generatedHead]byte{
	0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, // Ethernet, between addresses of local use
	0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, // IPv4, not to be fragmented
	0, 0, 0, 9, 0, 0, 0, 0, // UDP
}

// generatedSum is the sum of the words of the IPv4 header but for its length.
var generatedSum = sumWords(generatedHeaders[14:34])

func sumWords(b []byte) (sum uint32) {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return sum
}

// fold is a sum of the Internet checksum in 16 bits.
func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
