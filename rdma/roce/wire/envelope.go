package wire

import "github.com/unifiedd/unifiedd/rdma"

const (
	// Port is the UDP port of RoCE v2.
	Port = 4791
	// MaxEnvelopeBytes is the longest envelope: two VLAN tags and IPv6.
	MaxEnvelopeBytes = ethernetBytes + MaxTags*tagBytes + ipv6Bytes + udpBytes
	// MaxTags is the largest number of VLAN tags in front of the IP header.
	MaxTags = 2

	ethernetBytes = 14
	tagBytes      = 4
	ipv4Bytes     = 20
	ipv6Bytes     = 40
	udpBytes      = 8

	// minTransport is the length of a packet without payload and extension headers.
	minTransport = BTHBytes + ICRCBytes

	protocolUDP = 17
	typeIPv4    = 0x0800
	typeIPv6    = 0x86dd
)

// Tag is a VLAN tag. A Type of 0 means that the tag is absent.
type Tag struct {
	Type uint16 // 0x8100, 0x88a8 or 0x9100
	TCI  uint16 // priority and VLAN number
}

// Envelope has the headers in front of the base transport header of a received packet. Offsets are
// from the first byte of the Ethernet header.
type Envelope struct {
	Source, Destination       rdma.GID // an IPv4 address is mapped
	SourceMAC, DestinationMAC [6]byte
	Tags                      [MaxTags]Tag // the outer first

	Network   int // offset of the IP header
	Transport int // offset of the base transport header
	Length    int // bytes from the base transport header through the ICRC, as UDP says

	FlowLabel    uint32 // IPv6: 20 bits
	SourcePort   uint16 // selects the path through the network
	TrafficClass uint8  // DSCP and ECN
	HopLimit     uint8
	IPv6         bool
}

// Explicit congestion notification, the lower two bits of the traffic class. RFC 3168.
const (
	NotECT = 0 // routers drop the packet rather than mark it
	ECT1   = 1
	ECT0   = 2 // routers may mark the packet
	CE     = 3 // a router has marked it
)

// DSCP returns the class of service: 6 bits.
func (e *Envelope) DSCP() uint8 { return e.TrafficClass >> 2 }

// ECN returns NotECT, ECT0, ECT1 or CE.
func (e *Envelope) ECN() uint8 { return e.TrafficClass & CE }

// Parse reads the envelope of a packet of length bytes. frame has the first of them: all, or the
// first buffer of a packet in several buffers, which must have all headers. Bytes beyond UDP's
// length are padding. e is valid only if the result is WellFormed. Parse does not keep frame.
//
// Parse does not check the UDP checksum: the ICRC covers the packet.
func (e *Envelope) Parse(frame []byte, length int) Malformed {
	*e = Envelope{}
	ethertype, m := e.parseEthernet(frame)
	if m != WellFormed {
		return m
	}
	packet, length := frame[e.Network:], length-e.Network
	switch ethertype {
	case typeIPv4:
		return e.parseIPv4(packet, length)
	case typeIPv6:
		return e.parseIPv6(packet, length)
	}
	return NotRoCE
}

// parseEthernet reads the Ethernet header and the tags, and returns the type after them.
func (e *Envelope) parseEthernet(frame []byte) (ethertype uint16, m Malformed) {
	if len(frame) < ethernetBytes {
		return 0, FrameShort
	}
	e.DestinationMAC, e.SourceMAC = [6]byte(frame), [6]byte(frame[6:])
	ethertype, e.Network = be.Uint16(frame[12:]), ethernetBytes
	for i := 0; isTag(ethertype); i++ {
		if i == MaxTags {
			return 0, VLANDepth
		}
		if len(frame) < e.Network+tagBytes {
			return 0, FrameShort
		}
		e.Tags[i] = Tag{ethertype, be.Uint16(frame[e.Network:])}
		ethertype = be.Uint16(frame[e.Network+2:])
		e.Network += tagBytes
	}
	return ethertype, WellFormed
}

func isTag(ethertype uint16) bool {
	return ethertype == 0x8100 || ethertype == 0x88a8 || ethertype == 0x9100
}

// parseUDP reads the UDP header after the IP header. room is the length of the UDP header and
// everything after it, according to IP.
func (e *Envelope) parseUDP(packet []byte, ip, room int) Malformed {
	udp := packet[ip : ip+udpBytes]
	n := int(be.Uint16(udp[4:]))
	switch {
	case be.Uint16(udp[2:]) != Port:
		return NotRoCE
	case n < udpBytes+minTransport || n > room:
		return UDPLength
	}
	e.SourcePort = be.Uint16(udp)
	e.Transport, e.Length = e.Network+ip+udpBytes, n-udpBytes
	return WellFormed
}

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

const flowLabelMask = 1<<20 - 1

// parseIPv6 reads the IPv6 and UDP headers in front of packet, which is length bytes long.
func (e *Envelope) parseIPv6(packet []byte, length int) Malformed {
	if len(packet) < ipv6Bytes+udpBytes {
		return FrameShort
	}
	word, room := be.Uint32(packet), int(be.Uint16(packet[4:]))
	switch {
	case word>>28 != 6:
		return IPVersion
	case packet[6] != protocolUDP:
		return refuseNext(packet[6])
	case room < udpBytes || room > length-ipv6Bytes:
		return IPLength
	}
	e.IPv6 = true
	e.TrafficClass, e.FlowLabel, e.HopLimit = uint8(word>>20), word&flowLabelMask, packet[7]
	e.Source, e.Destination = rdma.GID(packet[8:24]), rdma.GID(packet[24:40])
	if isMapped(&e.Source) || isMapped(&e.Destination) {
		return IPAddress
	}
	return e.parseUDP(packet, ipv6Bytes, room)
}

// refuseNext returns the reason to refuse a next header that is not UDP. The numbers are IANA's
// "IPv6 Extension Header Types".
func refuseNext(header uint8) Malformed {
	switch header {
	case 44:
		return IPFragment
	case 0, 43, 50, 51, 60, 135, 139, 140, 253, 254:
		return IPExtension
	}
	return NotRoCE
}

// PutGRH writes the network header of a received datagram, rdma.GRHBytes: the IPv6 header, or
// twenty zeros and the IPv4 header. frame is the frame that Parse read.
func (e *Envelope) PutGRH(b, frame []byte) {
	b = b[:rdma.GRHBytes]
	if !e.IPv6 {
		clear(b[:ipv4Bytes])
		b = b[ipv4Bytes:]
	}
	copy(b, frame[e.Network:])
}

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
