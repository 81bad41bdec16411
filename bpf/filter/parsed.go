package filter

import "encoding/binary"

// parsed is struct parsed of unifiedd.bpf.c, filled by the same rules: what is
// not in a packet, or makes no sense, is zero. The names of its functions are those
// of the program's.
type parsed [72]byte

// Bounds of the program's parser.
const (
	maxTags       = 2
	maxExtensions = 8
	maxOffset     = 0x7fff
)

// IPv6 extension headers.
const (
	protoHopOpts  = 0
	protoRouting  = 43
	protoFragment = 44
	protoAH       = 51
	protoDstOpts  = 60
)

// cursor is a place in a packet.
type cursor struct {
	packet []byte
	offset int
}

// take returns n bytes at the cursor and moves it on, or nil at the end.
func (c *cursor) take(n int) []byte {
	if c.offset > maxOffset || c.offset+n > len(c.packet) {
		return nil
	}
	at := c.packet[c.offset:][:n]
	c.offset += n
	return at
}

func (p *parsed) put16(offset int, v uint16) { binary.NativeEndian.PutUint16(p[offset:], v) }

func (p *parsed) set(flag uint32) {
	binary.NativeEndian.PutUint32(p[offFlags:], binary.NativeEndian.Uint32(p[offFlags:])|flag)
}

func (p *parsed) parse(packet []byte) {
	*p = parsed{}
	c := cursor{packet: packet}
	ethertype, ok := p.parseEthernet(&c)
	if !ok {
		return
	}
	switch ethertype {
	case etherIPv4:
		p.parseIPv4(&c)
	case etherIPv6:
		p.parseIPv6(&c)
	case etherARP, etherRARP:
		p.parseARP(&c)
	}
}

// parseEthernet reads the header and the tags; not ok: the packet ends in a tag.
func (p *parsed) parseEthernet(c *cursor) (ethertype uint16, ok bool) {
	h := c.take(14)
	if h == nil {
		return 0, false
	}
	copy(p[offEthDst:], h[:6])
	copy(p[offEthSrc:], h[6:12])
	p.set(flagEther)
	ethertype = binary.BigEndian.Uint16(h[12:])
	p.put16(offEthertype, ethertype)
	for i := 0; i < maxTags && isTag(ethertype); i++ {
		tag := c.take(4)
		if tag == nil {
			return 0, false
		}
		p.put16(offVLAN0+2*i, binary.BigEndian.Uint16(tag)&0xfff)
		p[offTags] = byte(i + 1)
		ethertype = binary.BigEndian.Uint16(tag[2:])
		p.put16(offEthertype, ethertype)
	}
	return ethertype, true
}

func isTag(ethertype uint16) bool {
	return ethertype == 0x8100 || ethertype == 0x88a8 || ethertype == 0x9100
}

func (p *parsed) setProto(proto byte) {
	p[offProto] = proto
	p.set(flagProto)
}

func (p *parsed) parsePorts(c *cursor) {
	switch p[offProto] {
	case protoTCP, protoUDP, protoSCTP:
	default:
		return
	}
	if h := c.take(4); h != nil {
		p.put16(offSrcPort, binary.BigEndian.Uint16(h))
		p.put16(offDstPort, binary.BigEndian.Uint16(h[2:]))
		p.set(flagPorts)
	}
}

func (p *parsed) parseIPv4(c *cursor) {
	h := c.take(20)
	if h == nil {
		return
	}
	copy(p[offSrc4:], h[12:16])
	copy(p[offDst4:], h[16:20])
	p.set(flagIPv4)
	p.setProto(h[9])
	length := int(h[0]&15) * 4
	if binary.BigEndian.Uint16(h[6:])&0x1fff != 0 || length < len(h) {
		return
	}
	c.offset += length - len(h)
	p.parsePorts(c)
}

func (p *parsed) parseIPv6(c *cursor) {
	h := c.take(40)
	if h == nil {
		return
	}
	copy(p[offSrc6:], h[8:24])
	copy(p[offDst6:], h[24:40])
	p.set(flagIPv6)
	next := h[6]
	for range maxExtensions + 1 {
		if extensionLength(next, 0) == 0 {
			p.setProto(next)
			p.parsePorts(c)
			return
		}
		start := c.offset
		ext := c.take(8)
		if ext == nil {
			return
		}
		if next == protoFragment && binary.BigEndian.Uint16(ext[2:])&0xfff8 != 0 {
			p.setProto(ext[0])
			return
		}
		c.offset = start + extensionLength(next, ext[1])
		next = ext[0]
	}
}

// extensionLength is the bytes of an extension header, or 0 if it is none.
func extensionLength(proto, length byte) int {
	switch proto {
	case protoHopOpts, protoRouting, protoDstOpts:
		return (int(length) + 1) * 8
	case protoAH:
		return (int(length) + 2) * 4
	case protoFragment:
		return 8
	}
	return 0
}

func (p *parsed) parseARP(c *cursor) {
	h := c.take(28)
	if h == nil || h[4] != 6 || h[5] != 4 {
		return
	}
	copy(p[offSrc4:], h[14:18])
	copy(p[offDst4:], h[24:28])
	p.set(flagIPv4)
}
