package wire

// masks say which bits of a packet, in words of eight bytes from the IP header on, count as ones for the ICRC.
// Behind the words nothing does.
type masks struct {
	bytes int // through the base transport header
	words [7]uint64
}

var (
	masksIPv4 = makeMasks(ipv4Bytes, map[int]byte{
		1:  0xff,           // type of service
		8:  0xff,           // time to live
		10: 0xff, 11: 0xff, // header checksum
	})
	masksIPv6 = makeMasks(ipv6Bytes, map[int]byte{
		0: 0x0f, 1: 0xff, 2: 0xff, 3: 0xff, // traffic class, flow label
		7: 0xff, // hop limit
	})
)

// makeMasks adds to what varies in an IP header of ip bytes the UDP checksum and byte 4 of the base transport header.
func makeMasks(ip int, varies map[int]byte) (m masks) {
	varies[ip+6], varies[ip+7] = 0xff, 0xff
	varies[ip+udpBytes+4] = 0xff
	m.bytes = ip + udpBytes + BTHBytes
	for at, v := range varies {
		m.words[at/8] |= uint64(v) << (at % 8 * 8)
	}
	return m
}
