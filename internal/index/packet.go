package index

import "encoding/binary"

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherRARP = 0x8035
	etherIPv6 = 0x86dd

	maxTags       = 4
	maxExtensions = 8
	// maxKeys is the most keys of a packet: ethertypes, VLANs, two addresses and their pair, two ports, the
	// protocols.
	maxKeys = 1 + maxTags + maxTags + 3 + 2 + maxExtensions + 2
)

// packet has the hashes of a packet's keys. It finds at least the keys that filters find, both
// tcpdump's and ours. Where the two may differ, it marks the packet as not sure.
type packet struct {
	keys   [maxKeys]uint64
	n      int
	unsure bool // may have keys that were not found
}

func (p *packet) add(h uint64) {
	p.keys[p.n] = h
	p.n++
}

// parse reads an Ethernet frame, or its captured beginning.
func (p *packet) parse(b []byte) {
	p.n, p.unsure = 0, false
	if len(b) < 14 {
		return
	}
	ethertype, b := binary.BigEndian.Uint16(b[12:]), b[14:]
	p.add(hash1(kindEtherType, uint64(ethertype)))
	for range maxTags {
		if !isTag(ethertype) {
			break
		}
		if len(b) < 4 {
			return
		}
		p.add(hash1(kindVLAN, uint64(binary.BigEndian.Uint16(b)&0xfff)))
		ethertype, b = binary.BigEndian.Uint16(b[2:]), b[4:]
		p.add(hash1(kindEtherType, uint64(ethertype)))
	}
	switch ethertype {
	case etherIPv4:
		p.ipv4(b)
	case etherIPv6:
		p.ipv6(b)
	case etherARP, etherRARP:
		p.addresses4(b, 14, 24)
	}
	p.unsure = p.unsure || isTag(ethertype)
}

func isTag(ethertype uint16) bool {
	return ethertype == 0x8100 || ethertype == 0x88a8 || ethertype == 0x9100
}

// addresses4 adds the addresses at two places, as far as the packet has them.
func (p *packet) addresses4(b []byte, source, destination int) {
	if len(b) < source+4 {
		return
	}
	from := hash4(b[source:])
	p.add(from)
	if len(b) < destination+4 {
		return
	}
	to := hash4(b[destination:])
	p.add(to)
	p.add(hashPair(from, to))
}

func (p *packet) ipv4(b []byte) {
	if len(b) < 10 {
		return
	}
	protocol := b[9]
	p.add(hash1(kindProtocol, uint64(protocol)))
	p.addresses4(b, 12, 16)
	header := int(b[0]&15) * 4
	if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 { // a later fragment has no ports
		return
	}
	if header <= len(b) { // where it is too short to be true, some look for ports inside of it
		p.ports(protocol, b[header:])
	}
}

func (p *packet) ports(protocol byte, b []byte) {
	switch protocol {
	case 6, 17, 132:
	default:
		return
	}
	for i := 0; i < 2 && len(b) >= 2; i, b = i+1, b[2:] {
		p.add(hash1(kindPort, uint64(binary.BigEndian.Uint16(b))))
	}
}

func (p *packet) ipv6(b []byte) {
	if len(b) < 7 {
		return
	}
	next := b[6]
	p.add(hash1(kindProtocol, uint64(next)))
	if len(b) < 24 {
		return
	}
	from := hash6(b[8:])
	p.add(from)
	if len(b) < 40 {
		return
	}
	to := hash6(b[24:])
	p.add(to)
	p.add(hashPair(from, to))
	p.extensions(next, b[40:])
}

// extensions walks through as many extension headers as filters do, to the ports.
func (p *packet) extensions(next byte, b []byte) {
	for range maxExtensions + 1 {
		if extensionLength(next, 0) == 0 {
			p.ports(next, b)
			return
		}
		if len(b) < 8 {
			if len(b) > 0 { // the number of the next header may be there
				p.add(hash1(kindProtocol, uint64(b[0])))
			}
			return
		}
		length, later := extensionLength(next, b[1]), next == 44 && binary.BigEndian.Uint16(b[2:])&0xfff8 != 0
		next = b[0]
		p.add(hash1(kindProtocol, uint64(next)))
		if later || length > len(b) {
			return
		}
		b = b[length:]
	}
}

// extensionLength is the bytes of an IPv6 extension header, or 0 if the protocol is not one.
func extensionLength(protocol, length byte) int {
	switch protocol {
	case 0, 43, 60:
		return (int(length) + 1) * 8
	case 51:
		return (int(length) + 2) * 4
	case 44:
		return 8
	}
	return 0
}
