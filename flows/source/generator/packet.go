package generator

import "encoding/binary"

// putHeaders writes the headers of a packet of length bytes to the discard port, between two hosts
// with documentation addresses (RFC 5737). The UDP checksum is 0, which IPv4 permits.
func putHeaders(b []byte, length uint32) {
	copy(b, headers[:])
	ip, udp := uint16(length-14), uint16(length-34)
	binary.BigEndian.PutUint16(b[16:], ip)
	binary.BigEndian.PutUint16(b[24:], ^fold(headerSum+uint32(ip)))
	binary.BigEndian.PutUint16(b[38:], udp)
}

// headers are the headers, without lengths, checksum and source port.
var headers = [headerLen]byte{
	0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, // Ethernet, between locally administered addresses
	0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, // IPv4, don't fragment
	0, 0, 0, 9, 0, 0, 0, 0, // UDP
}

// headerSum is the sum of the words of the IPv4 header, without its length.
var headerSum = sumWords(headers[14:34])

func sumWords(b []byte) (sum uint32) {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return sum
}

// fold reduces a sum of 16-bit words to the Internet checksum.
func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
