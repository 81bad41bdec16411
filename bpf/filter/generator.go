package filter

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/internal/linktype"
)

// place is an offset in the packet: a number, or a number relative to a word of scratch memory,
// which only geneve needs.
type place struct {
	variable bool
	word     uint32
	offset   uint32
}

func (p place) plus(n int) place {
	p.offset += uint32(n)
	return p
}

// link is the kind of link layer the next test meets.
type link uint8

const (
	linkEthernet link = iota
	linkPPP
	linkRaw // none: the packet begins with the header of IPv4 or IPv6
)

// generator translates tests, in the order of the text. The places of headers depend on the tests
// before: each vlan, mpls, pppoes and geneve moves all later headers, whatever operator is between
// and whether the test holds, as in libpcap.
type generator struct {
	link     link
	header   place // the link layer's header
	linkType place // the type in it
	payload  place // the link layer's payload
	network  int   // the network layer's header, relative to payload; grows with labels
	labels   int   // of MPLS
	geneve   bool
	live     bool   // for a packet socket: the outermost tag may be beside the packet
	words    uint32 // of scratch memory that keep their values
	ids      map[string]int
	err      *Error
	offset   int // of the test
}

// newGenerator returns a generator for packets of a link type that [ParseFor] accepts.
func newGenerator(of linktype.Type) *generator {
	g := &generator{ids: map[string]int{}}
	if of == linktype.RawIP {
		g.link = linkRaw
		return g
	}
	g.linkType, g.payload = place{offset: 12}, place{offset: 14}
	return g
}

// noneHere is the error for a test of something that only Ethernet has.
func (g *generator) noneHere(what string) cond {
	if g.link == linkRaw {
		return g.fail(what+" in packets of link type RAW, which begin with the IP header", "")
	}
	return g.fail(what+" after pppoes", "this test before pppoes")
}

// fail keeps the first error. The returned cond is never used.
func (g *generator) fail(problem, expected string) cond {
	if g.err == nil {
		g.err = &Error{offset: g.offset, problem: problem, expected: expected}
	}
	return cond{op: opAnd}
}

// lower translates a node.
func (g *generator) lower(n *node) cond {
	if n.op == opTest {
		g.offset = n.offset
		return n.test(g)
	}
	c := cond{op: n.op, kids: make([]cond, len(n.kids))}
	for i, k := range n.kids {
		c.kids[i] = g.lower(k)
	}
	return c
}

// leaf makes a test of code.
func (g *generator) leaf(code []instr, how compare, value uint32) cond {
	return cond{leaf: &leaf{code: code, how: how, value: value, id: g.id(code)}}
}

// leafX makes a test of code that loads A and X.
func (g *generator) leafX(code []instr, how compare) cond {
	return cond{leaf: &leaf{code: code, how: how, withX: true, id: g.id(code)}}
}

// id returns a number that is the same for equal code.
func (g *generator) id(code []instr) int {
	if !pure(code, g.words) {
		return 0
	}
	var key []byte
	for _, i := range code {
		key = append(key, byte(i.op), i.sign, i.size)
		key = binary.BigEndian.AppendUint32(key, i.k)
	}
	id, ok := g.ids[string(key)]
	if !ok {
		id = len(g.ids) + 1
		g.ids[string(key)] = id
	}
	return id
}

// load loads size bytes at a place into A.
func load(at place, size int) []instr {
	if !at.variable {
		return []instr{{op: opLdAbs, size: uint8(size), k: at.offset}}
	}
	return []instr{{op: opLdxMem, k: at.word}, {op: opLdInd, size: uint8(size), k: at.offset}}
}

// is tests that a field has a value.
func (g *generator) is(at place, size int, value uint32) cond {
	return g.leaf(load(at, size), equal, value)
}

// masked tests that a field has a value under a mask. It does not read bytes that the mask does not
// cover.
func (g *generator) masked(at place, size int, value, mask uint32) cond {
	switch mask {
	case 0:
		return cond{op: opAnd}
	case 1<<(8*size) - 1:
		return g.is(at, size, value)
	}
	return g.leaf(append(load(at, size), instr{op: opALU, sign: '&', k: mask}), equal, value)
}

// bits tests that a field has any of the bits.
func (g *generator) bits(at place, size int, bits uint32) cond {
	return none(g.masked(at, size, 0, bits))
}

// field is an offset after the header of the network layer.
func (g *generator) field(offset int) place { return g.payload.plus(g.network + offset) }

// upper returns code that loads size bytes after the IPv4 header into A.
func (g *generator) upper(offset, size int) []instr {
	return append(g.headerToX(), instr{op: opLdInd, size: uint8(size), k: g.field(offset).offset})
}

// headerToX loads the length of the IPv4 header into X, plus the word that the payload is relative
// to, if there is one.
func (g *generator) headerToX() []instr {
	at := g.field(0)
	if !at.variable {
		return []instr{{op: opLdxMSH, k: at.offset}}
	}
	return append(load(at, 1), instr{op: opALU, sign: '&', k: 15}, instr{op: opALU, sign: 'l', k: 2},
		instr{op: opALUX, sign: '+'}, instr{op: opTAX})
}

// ends makes the test for the ends of a packet that the direction names.
func (d direction) ends(src, dst int, test func(offset int) cond) cond {
	switch d {
	case source:
		return test(src)
	case destination:
		return test(dst)
	case both:
		return allOf(test(src), test(dst))
	default:
		return anyOf(test(src), test(dst))
	}
}
