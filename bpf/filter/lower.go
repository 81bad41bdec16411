package filter

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// compare is how an atom compares a field with its value, both unsigned.
type compare uint8

const (
	equal compare = iota
	atLeast
	atMost
)

// atom is one load of a field, a mask, and a comparison.
type atom struct {
	offset int16
	size   int // bytes, 1, 2, 4 or 8
	mask   uint64
	how    compare
	value  uint64
}

// cond is an expression over atoms: what is left when the meaning of every test
// is spelt out.
type cond struct {
	op   op
	kids []cond
	atom atom
}

func all(kids ...cond) cond { return cond{op: opAnd, kids: kids} }
func any(kids ...cond) cond { return cond{op: opOr, kids: kids} }

func field(offset int16, size int, how compare, value uint64) cond {
	return cond{atom: atom{offset, size, math.MaxUint64, how, value}}
}

func is(offset int16, size int, value uint64) cond { return field(offset, size, equal, value) }

func flag(bit uint64) cond {
	return cond{atom: atom{offFlags, 4, bit, equal, bit}}
}

// present adds the test of the flag that says whether a field is there. Only a
// value that may be zero needs it, since a missing field is zero.
func present(mayBeZero bool, bit uint64, c cond) cond {
	if mayBeZero {
		return all(flag(bit), c)
	}
	return c
}

// lower spells out the tests of an expression.
func lower(n *node) cond {
	if n.op == opTest {
		return n.test.lower()
	}
	c := cond{op: n.op, kids: make([]cond, len(n.kids))}
	for i, k := range n.kids {
		c.kids[i] = lower(k)
	}
	return c
}

func (t test) lower() cond {
	switch t.subject {
	case subjectEther:
		return is(offEthertype, 2, uint64(t.number))
	case subjectProto:
		return t.lowerProto()
	case subjectNet:
		return t.lowerNet()
	case subjectPort:
		return t.lowerPort()
	case subjectVLAN:
		return lowerVLAN(t.number)
	case subjectMAC:
		return t.lowerMAC()
	default:
		return lowerMulticast(t.family)
	}
}

// ends makes the test for the ends of a packet that the direction names.
func (t test) ends(src, dst int16, test func(offset int16) cond) cond {
	switch t.direction {
	case source:
		return test(src)
	case destination:
		return test(dst)
	default:
		return any(test(src), test(dst))
	}
}

func (t test) lowerProto() cond {
	c := present(t.number == 0, flagProto, is(offProto, 1, uint64(t.number)))
	if t.family == anyNumber {
		return c
	}
	return all(is(offEthertype, 2, uint64(t.family)), c)
}

func (t test) lowerNet() cond {
	zero := netip.IPv6Unspecified()
	bit, src, dst, words := uint64(flagIPv6), int16(offSrc6), int16(offDst6), wordsIPv6
	if t.prefix.Addr().Is4() {
		zero = netip.IPv4Unspecified()
		bit, src, dst, words = flagIPv4, offSrc4, offDst4, wordsIPv4
	}
	if t.prefix.Bits() == 0 {
		return flag(bit)
	}
	return t.ends(src, dst, func(offset int16) cond {
		return present(t.prefix.Contains(zero), bit, words(t.prefix, offset))
	})
}

// Addresses lie in network order, so they are compared as the machine's words
// of their bytes; so is the mask.

func wordsIPv4(prefix netip.Prefix, offset int16) cond {
	addr := prefix.Addr().As4()
	mask := binary.NativeEndian.Uint32(maskBytes(prefix.Bits(), 4))
	return cond{atom: atom{offset, 4, fill(uint64(mask), 4), equal, uint64(binary.NativeEndian.Uint32(addr[:]))}}
}

func wordsIPv6(prefix netip.Prefix, offset int16) cond {
	addr, mask := prefix.Addr().As16(), maskBytes(prefix.Bits(), 16)
	var kids []cond
	for at := 0; at < prefix.Bits(); at += 64 {
		i := at / 8
		kids = append(kids, cond{atom: atom{offset + int16(i), 8,
			binary.NativeEndian.Uint64(mask[i:]), equal, binary.NativeEndian.Uint64(addr[i:])}})
	}
	return all(kids...)
}

// fill makes a mask of all ones of one that covers its whole field.
func fill(mask uint64, size int) uint64 {
	if mask == 1<<(8*size)-1 {
		return math.MaxUint64
	}
	return mask
}

// maskBytes returns size bytes of which the first bits are set.
func maskBytes(bits, size int) []byte {
	mask := make([]byte, size)
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}

func (t test) lowerPort() cond {
	c := present(t.low == 0, flagPorts, t.ends(offSrcPort, offDstPort, t.portAt))
	if t.number == anyNumber {
		return c
	}
	return all(is(offProto, 1, uint64(t.number)), c)
}

func (t test) portAt(offset int16) cond {
	if t.low == t.high {
		return is(offset, 2, uint64(t.low))
	}
	return all(field(offset, 2, atLeast, uint64(t.low)), field(offset, 2, atMost, uint64(t.high)))
}

func lowerVLAN(number int) cond {
	switch number {
	case anyNumber:
		return field(offTags, 1, atLeast, 1)
	case 0:
		return any(all(field(offTags, 1, atLeast, 1), is(offVLAN0, 2, 0)), all(field(offTags, 1, atLeast, 2), is(offVLAN1, 2, 0)))
	}
	return any(is(offVLAN0, 2, uint64(number)), is(offVLAN1, 2, uint64(number)))
}

func (t test) lowerMAC() cond {
	var padded [8]byte
	copy(padded[:], t.mac[:])
	value := binary.NativeEndian.Uint64(padded[:])
	return t.ends(offEthSrc, offEthDst, func(offset int16) cond {
		return present(value == 0, flagEther, is(offset, 8, value))
	})
}

// lowerMulticast tests the destination: the group bit of a MAC address, or the
// class D and above, or ff00::/8.
func lowerMulticast(family int) cond {
	switch family {
	case etherIPv4:
		return all(is(offEthertype, 2, etherIPv4), field(offDst4, 1, atLeast, 224))
	case etherIPv6:
		return is(offDst6, 1, 0xff)
	}
	return cond{atom: atom{offEthDst, 1, 1, equal, 1}}
}
