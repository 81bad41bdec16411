package filter

// Tests of encapsulations. Each changes the offset for later tests.

// vlanIs tests for a tag.
func (g *generator) vlanIs(number int) cond {
	switch {
	case g.labels > 0:
		return g.fail("there are no VLAN tags after mpls", "vlan before mpls")
	case g.link != linkEthernet:
		return g.noneHere("there are no VLAN tags")
	case g.live && !g.header.variable && g.header.offset == 0 && g.linkType.offset == 12 && !g.linkType.variable:
		return g.outerTagIs(number)
	}
	c := anyOf(g.linkIs(0x8100), g.linkIs(0x88a8), g.linkIs(0x9100))
	if number != anyNumber {
		c = allOf(c, g.masked(g.payload, 2, uint32(number), 0xfff))
	}
	g.linkType, g.payload = g.linkType.plus(4), g.payload.plus(4)
	return c
}

// outerTagIs is vlanIs for the outermost tag of a packet on a socket. If the kernel has removed the
// tag, later headers stay where they are. A word keeps by how much they move, and only a test that
// runs changes it, as in libpcap.
func (g *generator) outerTagIs(number int) cond {
	word := g.words
	g.words++
	beside := g.leaf([]instr{{op: opTag, k: tagPresent & (1<<32 - 1)}}, equal, 1)
	moved := append([]instr{{op: opLdImm, k: 4}, {op: opSt, k: word}}, load(g.linkType, 2)...)
	inside := anyOf(g.leaf(moved, equal, 0x8100), g.linkIs(0x88a8), g.linkIs(0x9100))
	if number == anyNumber {
		beside = anyOf(beside, inside)
	} else {
		tag := g.leaf([]instr{{op: opTag, k: tagNumber & (1<<32 - 1)}, {op: opALU, sign: '&', k: 0xfff}}, equal, uint32(number))
		beside = anyOf(allOf(beside, tag), allOf(none(beside), inside, g.masked(g.payload, 2, uint32(number), 0xfff)))
	}
	g.linkType, g.payload = place{variable: true, word: word, offset: 12}, place{variable: true, word: word, offset: 14}
	return beside
}

// mplsIs tests for a label.
func (g *generator) mplsIs(label int) cond {
	c := cond{}
	if g.labels > 0 {
		c = g.masked(g.field(-2), 1, 0, 1) // the one before is not the last
	} else if g.link == linkRaw {
		return g.noneHere("there are no labels of MPLS")
	} else {
		c = g.linkIs(etherMPLS)
	}
	if label != anyNumber {
		c = allOf(c, g.masked(g.field(0), 4, uint32(label)<<12, 0xfffff000))
	}
	g.network += 4
	g.labels++
	return c
}

// pppoesIs tests for a session.
func (g *generator) pppoesIs(session int) cond {
	c := g.linkIs(etherPPPoES)
	if session != anyNumber {
		c = allOf(c, g.masked(g.field(0), 4, uint32(session), 0xffff))
	}
	g.header = g.payload.plus(g.network + 6)
	g.linkType, g.payload = g.header, g.header.plus(2)
	g.link, g.network = linkPPP, 0
	return c
}

const genevePort = 6081

// geneveIs tests for Geneve over UDP, and finds the end of its options. The inner packet may be
// Ethernet or begin with the network layer.
func (g *generator) geneveIs(network int) cond {
	words := g.words
	g.words += 3
	c := anyOf(g.geneve4(network, words), g.geneve6(network, words))
	g.linkType = place{variable: true, word: words}
	g.header = place{variable: true, word: words + 1}
	g.payload = place{variable: true, word: words + 2}
	g.link, g.network, g.labels, g.geneve = linkEthernet, 0, 0, true
	return c
}

func (g *generator) geneve4(network int, words uint32) cond {
	udp := allOf(g.linkIs(etherIPv4), g.ports4(protoUDP, destination, genevePort, genevePort))
	start := append(g.headerToX(), instr{op: opTXA}, instr{op: opALU, sign: '+', k: g.field(8).offset})
	return allOf(udp, g.geneveHeader(network, func(offset, size int) []instr { return g.upper(8+offset, size) }), g.geneveEnd(start, words))
}

func (g *generator) geneve6(network int, words uint32) cond {
	udp := allOf(g.linkIs(etherIPv6), g.ports6(protoUDP, destination, genevePort, genevePort))
	at := g.field(48)
	start := []instr{{op: opLdImm, k: at.offset}}
	if at.variable {
		start = []instr{{op: opLdMem, k: at.word}, {op: opALU, sign: '+', k: at.offset}}
	}
	return allOf(udp, g.geneveHeader(network, func(offset, size int) []instr { return load(g.field(48+offset), size) }), g.geneveEnd(start, words))
}

// geneveHeader tests the version and the network's number.
func (g *generator) geneveHeader(network int, field func(offset, size int) []instr) cond {
	c := g.leaf(append(field(0, 1), instr{op: opALU, sign: '&', k: 0xc0}), equal, 0)
	if network == anyNumber {
		return c
	}
	return allOf(c, g.leaf(append(field(4, 4), instr{op: opALU, sign: '&', k: 0xffffff00}), equal, uint32(network)<<8))
}

// geneveEnd keeps, for a header that starts at A, the places of the type, of the link layer and of
// its payload. It always holds, unless the packet ends too early.
func (g *generator) geneveEnd(start []instr, words uint32) cond {
	typeAt, headerAt, payloadAt := words, words+1, words+2
	code := append(start, instr{op: opTAX},
		instr{op: opALU, sign: '+', k: 2}, instr{op: opSt, k: typeAt},
		instr{op: opLdInd, size: 1}, instr{op: opALU, sign: '&', k: 0x3f}, instr{op: opALU, sign: '*', k: 4},
		instr{op: opALU, sign: '+', k: 8}, instr{op: opALUX, sign: '+'}, instr{op: opSt, k: headerAt}, instr{op: opSt, k: payloadAt},
		instr{op: opLdInd, size: 2, k: 2})
	inner := []instr{{op: opLdMem, k: headerAt}, {op: opALU, sign: '+', k: 12}, {op: opSt, k: typeAt},
		{op: opALU, sign: '+', k: 2}, {op: opSt, k: payloadAt}, {op: opLdImm}}
	return anyOf(none(g.leaf(code, equal, etherBridge)), g.leaf(inner, equal, 0))
}

// isoIs tests the protocol in ISO's network layer, which has no SNAP header.
func (g *generator) isoIs(number int) cond {
	return allOf(g.linkIs(sapISO), g.is(g.field(3), 1, uint32(number)))
}

const isoISIS = 0x83

// isisIs tests for any of the kinds of packets of IS-IS.
func (g *generator) isisIs(kinds ...uint32) cond {
	c := cond{op: opOr}
	for _, k := range kinds {
		c.kids = append(c.kids, allOf(g.isoIs(isoISIS), g.is(g.field(3+4), 1, k)))
	}
	return c
}

// llcIs tests for LLC, and for its control field, if mask is not zero.
func (g *generator) llcIs(value, mask uint32) cond {
	switch {
	case g.labels > 0:
		return g.fail("there is no LLC after mpls", "llc before mpls")
	case g.link != linkEthernet:
		return g.noneHere("there is no LLC")
	}
	return allOf(g.isLLC(), none(g.is(g.payload, 2, 0xffff)), g.masked(g.payload.plus(2), 1, value, mask))
}
