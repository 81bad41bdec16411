package wire

// Reader parses the envelopes of packets that mostly follow one another on the same path. If
// the headers are those of the last packet, it parses only the lengths. The zero Reader is ready to use.
type Reader struct {
	Envelope
	front [ethernetBytes + ipv4Bytes]byte // of the last packet, if it was IPv4 without tags
	known bool
}

// Parse returns the same as Envelope.Parse.
func (r *Reader) Parse(frame []byte, length int) Malformed {
	if r.repeats(frame, length) {
		return WellFormed
	}
	m := r.Envelope.Parse(frame, length)
	if r.known = m == WellFormed && r.Network == ethernetBytes && r.Transport == len(r.front)+udpBytes; r.known {
		copy(r.front[:], frame)
	}
	return m
}

// Repeats parses a packet in one piece if it is valid and on the path of the last one, and reports
// whether it is.
func (r *Reader) Repeats(frame []byte) bool { return r.repeats(frame, len(frame)) }

// repeats reports whether the packet is valid, and equals the last one in its addresses and all
// other fields of Envelope.
func (r *Reader) repeats(frame []byte, length int) bool {
	const ip, udp = ethernetBytes, ethernetBytes + ipv4Bytes
	if !r.known || len(frame) < udp+udpBytes {
		return false
	}
	a, b := (*[udp + udpBytes]byte)(frame), &r.front
	differ := le.Uint64(a[0:]) ^ le.Uint64(b[0:])
	differ |= le.Uint64(a[8:]) ^ le.Uint64(b[8:])               // through the type of service
	differ |= uint64(le.Uint32(a[ip+6:]) ^ le.Uint32(b[ip+6:])) // fragment, time to live, protocol
	differ |= le.Uint64(a[ip+12:]) ^ le.Uint64(b[ip+12:])       // addresses
	total, n := int(be.Uint16(a[ip+2:])), int(be.Uint16(a[udp+4:]))
	switch {
	case differ != 0, be.Uint16(a[udp:]) != r.SourcePort, be.Uint16(a[udp+2:]) != Port:
		return false
	case total > length-ip, n > total-ipv4Bytes, n < udpBytes+minTransport, fold(sum(a[ip:udp])) != 0xffff:
		return false
	}
	r.Length = n - udpBytes
	return true
}
