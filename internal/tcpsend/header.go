package tcpsend

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Headroom is how many bytes in front of a payload Build may use.
const Headroom = 128

// Lengths of headers.
const (
	etherLen  = 14
	tagLen    = 4
	ipv4Len   = 20
	ipv6Len   = 40
	tcpLen    = 20
	stampsLen = 12 // the timestamp option, aligned as in RFC 7323
)

// MaxTags is the largest number of VLAN tags of a Path.
const MaxTags = 2

// Tag is a VLAN tag.
type Tag struct {
	Protocol uint16 // 0: no tag. Otherwise the Ethernet type of the tag, such as 0x8100
	Control  uint16 // priority and VLAN
}

// Path says how segments get to the next hop.
type Path struct {
	Source, Destination [6]byte // addresses of Ethernet
	Tags                [MaxTags]Tag
	HopLimit            uint8
	MTU                 int // longest packet with the IP header, in bytes
}

// template is the headers of a connection's segments, and where those fields are that differ.
type template struct {
	b       [Headroom]byte
	length  int // of all headers
	ip      int // offset of the IP header
	tcp     int // offset of the TCP header
	version int // 4 or 6
	stamps  bool
	pseudo  uint64 // sum of the addresses and the protocol, for the checksum
}

// make writes the headers for a path. class is IPv4's type of service, or IPv6's traffic class.
func (t *template) make(p *Path, local, remote netip.AddrPort, stamps bool, class uint8) {
	*t = template{stamps: stamps, version: 4}
	b := t.b[:0]
	b = append(append(b, p.Destination[:]...), p.Source[:]...)
	for _, tag := range p.Tags {
		if tag.Protocol != 0 {
			b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, tag.Protocol), tag.Control)
		}
	}
	from, to := local.Addr().Unmap(), remote.Addr().Unmap()
	if from.Is4() {
		b = binary.BigEndian.AppendUint16(b, 0x0800)
		t.ip = len(b)
		b = append(b, 0x45, class, 0, 0, 0, 0, 0x40, 0, p.HopLimit, protocolTCP, 0, 0) // may not be fragmented
	} else {
		t.version = 6
		b = binary.BigEndian.AppendUint16(b, 0x86dd)
		t.ip = len(b)
		b = append(b, 0x60|class>>4, class<<4, 0, 0, 0, 0, protocolTCP, p.HopLimit)
	}
	addresses := len(b)
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	t.pseudo = sum(b[addresses:]) + protocolTCP
	t.tcp = len(b)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, local.Port()), remote.Port())
	words, option := byte(tcpLen/4), []byte(nil)
	if stamps {
		words, option = (tcpLen+stampsLen)/4, []byte{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0}
	}
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, words<<4, flagsPushAck, 0, 0, 0, 0, 0, 0)
	t.length = len(append(b, option...))
}

const (
	protocolTCP  = 6
	flagsPushAck = 0x18
)

// fields are what differs between segments.
type fields struct {
	sequence, acknowledgement uint32
	window                    uint16
	stamp, echo               uint32
	id                        uint16
}

// write writes the headers in front of the payload b[Headroom:], and returns where they begin.
func (t *template) write(b []byte, f *fields) (start int) {
	start = Headroom - t.length
	head := b[start:]
	copy(head[:t.length], t.b[:t.length])
	ip, tcp := head[t.ip:], head[t.tcp:]
	if t.version == 4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], f.id)
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:ipv4Len])))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(tcp)))
	}
	binary.BigEndian.PutUint32(tcp[4:], f.sequence)
	binary.BigEndian.PutUint32(tcp[8:], f.acknowledgement)
	binary.BigEndian.PutUint16(tcp[14:], f.window)
	if t.stamps {
		binary.BigEndian.PutUint32(tcp[24:], f.stamp)
		binary.BigEndian.PutUint32(tcp[28:], f.echo)
	}
	binary.BigEndian.PutUint16(tcp[16:], ^fold(sum(tcp)+t.pseudo+uint64(len(tcp))))
	return start
}

// sum adds up bytes as numbers of 32 bits: the sum of RFC 1071, before it is folded. It cannot overflow for a packet.
func sum(b []byte) (s uint64) {
	for ; len(b) >= 8; b = b[8:] {
		v, carry := bits.Add64(s, binary.BigEndian.Uint64(b), 0)
		s = v + carry
	}
	s = s>>32 + s&0xffffffff
	if len(b) >= 4 {
		s += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

// fold makes a sum of 16 bits of one.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}
