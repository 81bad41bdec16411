package wire

import (
	"errors"

	"github.com/unifiedd/unifiedd/rdma"
)

// Path has the parts of the envelope that are the same for all packets from one queue pair to
// another.
type Path struct {
	Source, Destination       rdma.GID // both IPv6, or both IPv4 and mapped
	SourceMAC, DestinationMAC [6]byte
	Tags                      [MaxTags]Tag // the outer first
	SourcePort                uint16       // see SourcePort: 0xc000 to 0xffff
	TrafficClass              uint8        // DSCP, and ECN: ECT0 if the sender reacts to congestion marks
	HopLimit                  uint8
	FlowLabel                 uint32 // IPv6: 20 bits
}

// Errors of NewTemplate.
var (
	errFamilies   = errors.New("one address is IPv4 and the other IPv6: a packet has one kind")
	errSourcePort = errors.New("the UDP source port is below 49152 (0xc000): RoCE v2 has those above")
	errTags       = errors.New("a VLAN tag has a type other than 0x8100, 0x88a8 and 0x9100, or follows a missing one")
)

// Template is the envelope of the packets on a path, computed once. Put changes only the lengths,
// the IPv4 identification and the header checksum for each packet.
type Template struct {
	bytes   [MaxEnvelopeBytes]byte
	length  uint8
	network uint8
	ipv6    bool
	sum     uint64 // of the IPv4 header without length, identification and checksum
}

// NewTemplate makes the envelope of a path.
func NewTemplate(p *Path) (Template, error) {
	switch {
	case p.Source.Is4() != p.Destination.Is4():
		return Template{}, errFamilies
	case p.SourcePort < minSourcePort:
		return Template{}, errSourcePort
	case !tagsFit(p.Tags):
		return Template{}, errTags
	}
	t := Template{ipv6: !p.Source.Is4()}
	b := t.putEthernet(p)
	if t.ipv6 {
		b = putIPv6(b, p)
	} else {
		t.sum = putIPv4(b, p)
		b = b[ipv4Bytes:]
	}
	be.PutUint16(b, p.SourcePort)
	be.PutUint16(b[2:], Port)
	t.length = uint8(len(t.bytes) - len(b) + udpBytes)
	return t, nil
}

func tagsFit(tags [MaxTags]Tag) bool {
	for i, tag := range tags {
		switch {
		case tag.Type == 0 && tag.TCI == 0:
		case !isTag(tag.Type), i > 0 && tags[i-1].Type == 0:
			return false
		}
	}
	return true
}

// putEthernet writes the Ethernet header and the tags, and returns the rest of the slice.
func (t *Template) putEthernet(p *Path) []byte {
	copy(t.bytes[:], p.DestinationMAC[:])
	copy(t.bytes[6:], p.SourceMAC[:])
	b := t.bytes[12:]
	for _, tag := range p.Tags {
		if tag.Type != 0 {
			be.PutUint16(b, tag.Type)
			be.PutUint16(b[2:], tag.TCI)
			b = b[tagBytes:]
		}
	}
	be.PutUint16(b, typeIPv4)
	if t.ipv6 {
		be.PutUint16(b, typeIPv6)
	}
	t.network = uint8(len(t.bytes) - len(b) + 2)
	return b[2:]
}

// putIPv4 writes the header except for the fields that Put writes, and returns its sum.
func putIPv4(b []byte, p *Path) uint64 {
	b[0], b[1] = 0x45, p.TrafficClass
	be.PutUint16(b[6:], dontFragment)
	b[8], b[9] = p.HopLimit, protocolUDP
	copy(b[12:], p.Source[mapped:])
	copy(b[16:], p.Destination[mapped:])
	return sum(b[:ipv4Bytes])
}

// putIPv6 writes the header except its length, and returns the rest of the slice.
func putIPv6(b []byte, p *Path) []byte {
	be.PutUint32(b, 6<<28|uint32(p.TrafficClass)<<20|p.FlowLabel&flowLabelMask)
	b[6], b[7] = protocolUDP, p.HopLimit
	copy(b[8:], p.Source[:])
	copy(b[24:], p.Destination[:])
	return b[ipv6Bytes:]
}

// Bytes returns the length of the envelope, which is the offset of the base transport header.
func (t *Template) Bytes() int { return int(t.length) }

// Network returns the offset of the IP header, where the ICRC begins.
func (t *Template) Network() int { return int(t.network) }

// untagged4 is the length of most envelopes: Ethernet, IPv4 and UDP.
const untagged4 = ethernetBytes + ipv4Bytes + udpBytes

// Put writes the envelope of a packet to the front of b, which must have room for Bytes, and
// returns Bytes. transport is the number of bytes that follow: base transport header, extension
// headers, payload, padding and ICRC, at most 65,507. id is the identification of the IPv4 header,
// which should differ between packets. IPv6 has none.
func (t *Template) Put(b []byte, id uint16, transport int) int {
	if t.length == untagged4 {
		*(*[untagged4]byte)(b) = [untagged4]byte(t.bytes[:])
	} else {
		copy(b[:t.length], t.bytes[:])
	}
	ip, length := b[t.network:t.length], uint16(transport+udpBytes)
	if t.ipv6 {
		be.PutUint16(ip[4:], length)
		be.PutUint16(ip[ipv6Bytes+4:], length)
		return int(t.length)
	}
	total := length + ipv4Bytes
	be.PutUint16(ip[2:], total)
	be.PutUint16(ip[4:], id)
	be.PutUint16(ip[10:], ^fold(t.sum+uint64(total)+uint64(id)))
	be.PutUint16(ip[ipv4Bytes+4:], length)
	return int(t.length)
}

const (
	minSourcePort = 0xc000
	portBits      = 14
)

// SourcePort returns the UDP source port of packets between two queue pairs, the same in both
// directions, 0xc000 to 0xffff. Routers and cards use it to spread packets over paths and queues.
// flowLabel is that of the path, 0 if it has none. rdma_get_udp_sport in include/rdma/ib_verbs.h.
func SourcePort(flowLabel, localQPN, remoteQPN uint32) uint16 {
	if flowLabel == 0 {
		flowLabel = flowLabelOf(localQPN, remoteQPN)
	}
	low, high := flowLabel&(1<<portBits-1), flowLabel&flowLabelMask>>portBits
	return uint16(low^high) | minSourcePort
}

// flowLabelOf is rdma_calc_flow_label.
func flowLabelOf(localQPN, remoteQPN uint32) uint32 {
	v := uint64(localQPN) * uint64(remoteQPN)
	v ^= v >> 20
	v ^= v >> 40
	return uint32(v) & flowLabelMask
}
