package filter

import "encoding/binary"

// The ethertypes that filters know.
const (
	etherIPv4   = 0x0800
	etherARP    = 0x0806
	etherRARP   = 0x8035
	etherIPv6   = 0x86dd
	etherATALK  = 0x809b
	etherAARP   = 0x80f3
	etherIPX    = 0x8137
	etherMPLS   = 0x8847
	etherPPPoED = 0x8863
	etherPPPoES = 0x8864
	etherBridge = 0x6558 // Ethernet in another protocol
	etherLeast  = 1501   // numbers below are lengths
)

// Service access points of LLC, which linkType accepts in place of ethertypes.
const (
	sapIP      = 0x06
	sapSTP     = 0x42
	sapIPX     = 0xe0
	sapNetBEUI = 0xf0
	sapISO     = 0xfe
)

// The protocols that filters know.
const (
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoFragment = 44
	protoICMPv6   = 58
	protoSCTP     = 132
)

// pppTypes maps ethertypes and access points to PPP's protocol numbers.
var pppTypes = map[int]uint32{
	etherIPv4: 0x21, etherIPv6: 0x57, etherATALK: 0x29, 0x6003: 0x27, 0x0600: 0x25,
	sapISO: 0x23, sapSTP: 0x31, sapIPX: 0x2b, etherMPLS: 0x281,
}

// linkIs tests the type of the link layer's payload: an ethertype, or an access point.
func (g *generator) linkIs(number int) cond {
	if g.labels > 0 {
		return g.labelledIs(number)
	}
	if g.link == linkRaw {
		return g.versionIs(number)
	}
	if g.link == linkPPP {
		v, ok := pppTypes[number]
		if !ok {
			v = uint32(number)
		}
		return g.is(g.linkType, 2, v)
	}
	switch {
	case number == sapISO || number == sapIP || number == sapNetBEUI:
		return allOf(g.isLLC(), g.is(g.payload, 2, uint32(number)<<8|uint32(number)))
	case number == sapIPX:
		return anyOf(g.is(g.linkType, 2, etherIPX), allOf(g.isLLC(), anyOf(g.snap(0, etherIPX),
			g.is(g.payload, 1, sapIPX), g.is(g.payload, 2, 0xffff))))
	case number == etherATALK:
		return anyOf(g.is(g.linkType, 2, etherATALK), allOf(g.isLLC(), g.snap(0x080007, etherATALK)))
	case number == etherAARP:
		return anyOf(g.is(g.linkType, 2, etherAARP), allOf(g.isLLC(), g.snap(0, etherAARP)))
	case number < etherLeast:
		return allOf(g.isLLC(), g.is(g.payload, 1, uint32(number)))
	}
	return g.is(g.linkType, 2, uint32(number))
}

// versionIs tests a packet without a link layer header by its IP version. Such a packet can be nothing else.
func (g *generator) versionIs(number int) cond {
	switch number {
	case etherIPv4:
		return g.masked(g.payload, 1, 0x40, 0xf0)
	case etherIPv6:
		return g.masked(g.payload, 1, 0x60, 0xf0)
	}
	return cond{op: opOr}
}

// isLLC tests that the type is a length.
func (g *generator) isLLC() cond { return none(g.leaf(load(g.linkType, 2), atLeast, etherLeast)) }

// snap tests for a SNAP header with an organization and one of its protocols.
func (g *generator) snap(organization, protocol uint32) cond {
	return allOf(g.is(g.payload.plus(4), 4, organization<<16|protocol), g.is(g.payload, 4, 0xaaaa0300|organization>>16))
}

// labelledIs tests the payload after MPLS labels, by its IP version.
func (g *generator) labelledIs(number int) cond {
	version, ok := map[int]uint32{etherIPv4: 0x40, etherIPv6: 0x60}[number]
	if !ok {
		return g.fail("after mpls only IPv4 and IPv6 can be tested", "")
	}
	return allOf(g.masked(g.field(-2), 1, 1, 1), g.masked(g.field(0), 1, version, 0xf0))
}

// protoIs tests the protocol in IPv4, IPv6, or both. In IPv6 one fragment header may precede it.
func (g *generator) protoIs(family, number int) cond {
	v := uint32(number)
	switch family {
	case etherIPv4:
		return allOf(g.linkIs(etherIPv4), g.is(g.field(9), 1, v))
	case etherIPv6:
		return allOf(g.linkIs(etherIPv6), anyOf(g.is(g.field(6), 1, v),
			allOf(g.is(g.field(6), 1, protoFragment), g.is(g.field(40), 1, v))))
	}
	return anyOf(g.protoIs(etherIPv4, number), g.protoIs(etherIPv6, number))
}

// chainIs tests for a protocol after any number of headers.
func (g *generator) chainIs(family, number int) cond {
	if family == anyNumber {
		return anyOf(g.chainIs(etherIPv4, number), g.chainIs(etherIPv6, number))
	}
	at := g.field(0)
	if at.variable {
		return g.fail("protochain is not possible after geneve", "")
	}
	code := []instr{{op: opChain, six: family == etherIPv6, k: at.offset, want: uint32(number)}}
	return allOf(g.linkIs(family), g.leaf(code, equal, uint32(number)))
}

// hostIs tests IPv4 addresses under a mask, of one protocol or of all that have them.
func (g *generator) hostIs(family int, d direction, address, mask uint32) cond {
	switch family {
	case etherIPv4:
		return g.addressIs(etherIPv4, d, 12, 16, address, mask)
	case etherARP, etherRARP:
		return g.addressIs(family, d, 14, 24, address, mask)
	}
	if g.labels > 0 {
		return g.hostIs(etherIPv4, d, address, mask)
	}
	return anyOf(g.hostIs(etherIPv4, d, address, mask), g.hostIs(etherARP, d, address, mask), g.hostIs(etherRARP, d, address, mask))
}

func (g *generator) addressIs(family int, d direction, src, dst int, address, mask uint32) cond {
	return d.ends(src, dst, func(offset int) cond {
		return allOf(g.linkIs(family), g.masked(g.field(offset), 4, address, mask))
	})
}

// host6Is tests IPv6 addresses under a mask.
func (g *generator) host6Is(d direction, address, mask [16]byte) cond {
	return d.ends(8, 24, func(offset int) cond {
		kids := []cond{g.linkIs(etherIPv6)}
		for at := 0; at < 16; at += 4 {
			kids = append(kids, g.masked(g.field(offset+at), 4,
				binary.BigEndian.Uint32(address[at:]), binary.BigEndian.Uint32(mask[at:])))
		}
		return allOf(kids...)
	})
}

// macIs tests Ethernet addresses.
func (g *generator) macIs(d direction, mac [6]byte) cond {
	return g.ethernet(func() cond {
		return d.ends(6, 0, func(offset int) cond {
			return allOf(g.is(g.header.plus(offset+2), 4, binary.BigEndian.Uint32(mac[2:])),
				g.is(g.header.plus(offset), 2, uint32(binary.BigEndian.Uint16(mac[:]))))
		})
	})
}

// ethernet makes a test of an Ethernet header. Inside geneve there may be no such header.
func (g *generator) ethernet(test func() cond) cond {
	switch {
	case g.link != linkEthernet:
		return g.noneHere("there are no Ethernet addresses")
	case !g.geneve:
		return test()
	}
	same := g.leafX([]instr{{op: opLdMem, k: g.header.word}, {op: opLdxMem, k: g.payload.word}}, equal)
	return allOf(none(same), test())
}

// portIs tests the ports of one protocol, or of all that have them.
func (g *generator) portIs(proto int, d direction, low, high uint32) cond {
	protos := []int{protoSCTP, protoTCP, protoUDP}
	if proto != anyNumber {
		protos = []int{proto}
	}
	var six, four []cond
	for _, n := range protos {
		six = append(six, g.ports6(n, d, low, high))
		four = append(four, g.ports4(n, d, low, high))
	}
	return anyOf(allOf(g.linkIs(etherIPv6), anyOf(six...)), allOf(g.linkIs(etherIPv4), anyOf(four...)))
}

// ports6 does not skip extension headers.
func (g *generator) ports6(proto int, d direction, low, high uint32) cond {
	return allOf(g.is(g.field(6), 1, uint32(proto)), d.ends(40, 42, func(offset int) cond {
		return g.within(load(g.field(offset), 2), low, high)
	}))
}

// ports4 matches no fragment but the first.
func (g *generator) ports4(proto int, d direction, low, high uint32) cond {
	return allOf(g.is(g.field(9), 1, uint32(proto)), g.first(), d.ends(0, 2, func(offset int) cond {
		return g.within(g.upper(offset, 2), low, high)
	}))
}

// first tests that an IPv4 packet is not a later fragment.
func (g *generator) first() cond { return none(g.bits(g.field(6), 2, 0x1fff)) }

// within tests that the result of code is between low and high.
func (g *generator) within(code []instr, low, high uint32) cond {
	if low == high {
		return g.leaf(code, equal, low)
	}
	return allOf(g.leaf(code, atLeast, low), none(g.leaf(code, above, high)))
}
