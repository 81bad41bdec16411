package filter

import (
	"fmt"
	"slices"
	"strconv"
)

// term is an arithmetic expression.
type term struct {
	sign   byte   // an operator of instr; 0 a number, L the length, [ bytes of the packet, n negation
	number uint32 // of 0; the size of [
	layer  string // of [
	kids   []*term
	depth  int
}

// signText is how an operator is written.
func signText(sign byte) string {
	switch sign {
	case 'l':
		return "<<"
	case 'r':
		return ">>"
	}
	return string(sign)
}

// String prints the term with every group in parentheses.
func (t *term) String() string {
	switch t.sign {
	case 0:
		return strconv.FormatUint(uint64(t.number), 10)
	case 'L':
		return "len"
	case 'n':
		return "-" + t.kids[0].String()
	case '[':
		if t.number == 1 {
			return fmt.Sprintf("%s[%s]", t.layer, t.kids[0])
		}
		return fmt.Sprintf("%s[%s:%d]", t.layer, t.kids[0], t.number)
	}
	return fmt.Sprintf("(%s %s %s)", t.kids[0], signText(t.sign), t.kids[1])
}

// relations are the comparisons of two terms, by how they are written.
var relations = map[string]struct {
	how     compare
	negated bool
}{
	">": {above, false}, ">=": {atLeast, false}, "=": {equal, false}, "==": {equal, false},
	"<=": {above, true}, "<": {atLeast, true}, "!=": {equal, true},
}

// relation is a comparison of two terms.
type relation struct {
	sign        string
	left, right *term
}

// String prints the relation as [Parse] reads it.
func (r relation) String() string {
	sign := r.sign
	if sign == "==" {
		sign = "="
	}
	return fmt.Sprintf("%s %s %s", r.left, sign, r.right)
}

// lower tests that the packet has the layers that the terms read, and compares the terms.
func (r relation) lower(g *generator) cond {
	v := valuer{generator: g, word: g.words}
	how := relations[r.sign]
	var c cond
	var checks []cond
	if n, ok := r.right.constant(); ok {
		code, needs := v.value(r.left)
		c, checks = g.leaf(code, how.how, n), needs
	} else {
		code, left, right := v.both(r.left, r.right)
		c = g.leafX(code, how.how)
		checks = append(left, right...)
	}
	if how.negated {
		c = none(c)
	}
	return allOf(append(checks, c)...)
}

// maxWords is the number of words of scratch memory.
const maxWords = 16

// valuer generates the code of terms, and the checks that must pass before that code runs.
type valuer struct {
	*generator
	word uint32 // the next free
}

// constant returns the value of a term that reads no bytes of the packet and can be calculated now.
func (t *term) constant() (uint32, bool) {
	switch t.sign {
	case 0:
		return t.number, true
	case 'L', '[':
		return 0, false
	}
	a, ok := t.kids[0].constant()
	if !ok || t.sign == 'n' {
		return -a, ok
	}
	b, ok := t.kids[1].constant()
	if !ok {
		return 0, false
	}
	return calculate(t.sign, a, b)
}

// value returns code that loads a term into A. As in libpcap, for an operator only the layers of
// its left side must exist.
func (v *valuer) value(t *term) (code []instr, checks []cond) {
	if n, ok := t.constant(); ok {
		return []instr{{op: opLdImm, k: n}}, nil
	}
	switch t.sign {
	case 'L':
		return []instr{{op: opLdLen}}, nil
	case 'n':
		code, checks = v.value(t.kids[0])
		return append(code, instr{op: opNeg}), checks
	case '[':
		return v.bytes(t)
	}
	if n, ok := t.kids[1].constant(); ok {
		code, checks = v.value(t.kids[0])
		return append(code, instr{op: opALU, sign: t.sign, k: n}), checks
	}
	code, checks, _ = v.both(t.kids[0], t.kids[1])
	return append(code, instr{op: opALUX, sign: t.sign}), checks
}

// both returns code that loads one term into A and another into X.
func (v *valuer) both(a, x *term) (code []instr, checksA, checksX []cond) {
	first, checksA := v.value(a)
	word := v.take()
	second, checksX := v.value(x)
	v.word--
	code = append(first, instr{op: opSt, k: word})
	return append(append(code, second...), instr{op: opTAX}, instr{op: opLdMem, k: word}), checksA, checksX
}

// take returns a free word.
func (v *valuer) take() uint32 {
	if v.word++; v.word > maxWords {
		v.fail("too many numbers to remember at once", "a simpler calculation")
		return 0
	}
	return v.word - 1
}

// bytes returns code that loads bytes of the packet into A.
func (v *valuer) bytes(t *term) (code []instr, checks []cond) {
	index, constant := t.kids[0].constant()
	if !constant {
		code, checks = v.value(t.kids[0])
	}
	base, transport, checks := v.layer(t.layer, checks)
	size := uint8(t.number)
	switch {
	case constant && transport:
		return append(v.headerToX(), instr{op: opLdInd, size: size, k: base.offset + index}), checks
	case constant:
		return load(base.plus(int(index)), int(size)), checks
	case transport:
		word := v.take()
		v.word--
		code = append(append(append(code, instr{op: opSt, k: word}), v.headerToX()...),
			instr{op: opLdMem, k: word}, instr{op: opALUX, sign: '+'})
	case base.variable:
		code = append(code, instr{op: opLdxMem, k: base.word}, instr{op: opALUX, sign: '+'})
	}
	return append(code, instr{op: opTAX}, instr{op: opLdInd, size: size, k: base.offset}), checks
}

// layer returns where the bytes of a layer begin. transport: after the IPv4 header. It adds the
// conditions for that to checks.
func (v *valuer) layer(name string, checks []cond) (base place, transport bool, _ []cond) {
	switch {
	case name == "ether":
		return v.header, false, checks
	case name == "icmp6":
		return v.field(40), false, append(checks, v.linkIs(etherIPv6), v.is(v.field(6), 1, protoICMPv6))
	case slices.Contains(transports, name):
		checks = append([]cond{v.linkIs(etherIPv4)}, checks...)
		return v.field(0), true, append(checks, abbreviations[name](v.generator), v.first())
	}
	return v.field(0), false, append(checks, abbreviations[name](v.generator))
}

// transports are the layers after IPv4 whose bytes an expression may read, and networks those
// after the link layer.
var (
	transports = []string{"sctp", "tcp", "udp", "icmp", "igmp", "igrp", "pim", "vrrp", "carp"}
	networks   = []string{"arp", "rarp", "atalk", "decnet", "lat", "sca", "mopdl", "moprc", "ip", "ip6"}
)

func hasBytes(name string) bool {
	return name == "ether" || name == "icmp6" || slices.Contains(transports, name) || slices.Contains(networks, name)
}
