package filter

import (
	"math/bits"
)

// rangeOf returns the range of a quantity.
func (s *values) rangeOf(q quantity) between {
	if s.left--; s.left < 0 {
		return whole
	}
	r, d := whole, &s.all[q]
	switch d.kind {
	case constant:
		return between{d.k, d.k}
	case loaded:
		r.high = 1<<(8*d.size) - 1
	case asked:
		r.high = 1
	case computed:
		r = calculated(d.sign, s.rangeOf(d.a), s.rangeOf(d.b))
	}
	if noted, ok := s.ranges[q]; ok {
		r.low, r.high = max(r.low, noted.low), min(r.high, noted.high)
	}
	b := s.bitsOf(q)
	return between{max(r.low, b.value), min(r.high, b.value|^b.mask)}
}

// calculated returns the range of a calculation's result: all numbers if it may wrap.
func calculated(sign byte, a, b between) between {
	wide := func(low, high uint64) between {
		if high > uint64(whole.high) {
			return whole
		}
		return between{uint32(low), uint32(high)}
	}
	switch {
	case sign == '+':
		return wide(uint64(a.low)+uint64(b.low), uint64(a.high)+uint64(b.high))
	case sign == '-' && a.low >= b.high:
		return between{a.low - b.high, a.high - b.low}
	case sign == '*':
		high, low := bits.Mul64(uint64(a.high), uint64(b.high))
		if high != 0 {
			return whole
		}
		return wide(uint64(a.low)*uint64(b.low), low)
	case sign == '&':
		return between{0, min(a.high, b.high)}
	case sign == '|':
		return between{max(a.low, b.low), whole.high}
	case sign == '/' && b.low > 0:
		return between{a.low / b.high, a.high / b.low}
	case sign == '%' && b.high > 0:
		return between{0, min(a.high, b.high-1)}
	case sign == 'r' && b.low == b.high && b.low < 32:
		return between{a.low >> b.low, a.high >> b.low}
	case sign == 'l' && b.low == b.high && b.low < 32:
		return wide(uint64(a.low)<<b.low, uint64(a.high)<<b.low)
	}
	return whole
}

// bitsOf returns the known bits of a quantity.
func (s *values) bitsOf(q quantity) known {
	if s.left--; s.left < 0 {
		return known{}
	}
	var b known
	switch d := &s.all[q]; d.kind {
	case constant:
		return known{^uint32(0), d.k}
	case asked:
		b.mask = ^uint32(1)
	case loaded:
		b.mask = ^uint32(0) << (8*d.size - 1) << 1
		for i := range uint32(d.size) {
			c, shift := s.cells[cell{d.a, d.k + i}], 8*(uint32(d.size)-1-i)
			b.mask, b.value = b.mask|c.mask<<shift, b.value|c.value<<shift
		}
	case computed:
		if n, ok := s.number(d.b); ok {
			b = s.bitsOf(d.a).with(d.sign, n)
		}
	}
	noted := s.bits[q]
	return known{b.mask | noted.mask, b.value | noted.value}
}

// with returns the known bits of a calculation with a number.
func (b known) with(sign byte, n uint32) known {
	switch sign {
	case '&':
		return known{b.mask | ^n, b.value & n}
	case '|':
		return known{b.mask | n, b.value | n}
	case '^':
		return known{b.mask, (b.value ^ n) & b.mask}
	}
	left, ok := shift(sign, n)
	switch {
	case !ok:
		return known{}
	case left >= 0:
		return known{b.mask<<left | (1<<left - 1), b.value << left}
	}
	return known{b.mask>>-left | ^(^uint32(0) >> -left), b.value >> -left}
}

// shift returns by how many bits a calculation moves the bits of its other operand to the left; not ok if it
// does anything else.
func shift(sign byte, n uint32) (left int, ok bool) {
	switch {
	case sign == 'l' && n < 32:
		return int(n), true
	case sign == 'r' && n < 32:
		return -int(n), true
	case sign == '*' && bits.OnesCount32(n) == 1:
		return bits.TrailingZeros32(n), true
	case sign == '/' && bits.OnesCount32(n) == 1:
		return -bits.TrailingZeros32(n), true
	}
	return 0, false
}

// within notes that a quantity lies in a range, and reports whether that is possible.
func (s *values) within(q quantity, r between) bool {
	now := s.rangeOf(q)
	r = between{max(r.low, now.low), min(r.high, now.high)}
	for r.low < r.high && s.not[ruledOut{q, r.low}] {
		r.low++
	}
	for r.low < r.high && s.not[ruledOut{q, r.high}] {
		r.high--
	}
	switch {
	case r.low > r.high, r.low == r.high && s.not[ruledOut{q, r.low}]:
		return false
	case r == now:
		return true
	}
	note(s, s.ranges, q, r)
	same := bits.LeadingZeros32(r.low ^ r.high) // bits in front that all numbers of the range share
	mask := ^(^uint32(0) >> same)
	return s.learn(q, known{mask, r.low & mask}) && s.backwards(q, r)
}

// backwards notes what the range of a sum implies for its first operand.
func (s *values) backwards(q quantity, r between) bool {
	d := &s.all[q]
	if d.kind != computed || d.sign != '+' && d.sign != '-' {
		return true
	}
	n, ok := s.number(d.b)
	if !ok {
		return true
	}
	if d.sign == '+' {
		n = -n
	}
	if low, high := r.low+n, r.high+n; low <= high { // does not wrap
		return s.within(d.a, between{low, high})
	}
	return true
}

// exclude notes that a quantity differs from a number, and reports whether another value is
// possible.
func (s *values) exclude(q quantity, n uint32) bool {
	r := s.rangeOf(q)
	switch {
	case r.low == n && r.high == n:
		return false
	case n < r.low || n > r.high:
		return true
	}
	note(s, s.not, ruledOut{q, n}, true)
	b := s.bitsOf(q)
	switch {
	case bits.OnesCount32(^b.mask) == 1 && n&b.mask == b.value: // then the one bit is the other way
		return s.learn(q, known{^uint32(0), n ^ ^b.mask})
	case r.low == n:
		return s.within(q, between{n + 1, r.high})
	case r.high == n:
		return s.within(q, between{r.low, n - 1})
	}
	return true
}

// consistent reports whether every noted range still has a number in it, now that more is known of its
// operands.
func (s *values) consistent() bool {
	for q := range s.ranges {
		if r := s.rangeOf(q); r.low > r.high || r.low == r.high && s.not[ruledOut{q, r.low}] {
			return false
		}
	}
	return true
}

// learn notes bits of a quantity and of its operands, and reports whether they agree with the known ones.
func (s *values) learn(q quantity, b known) bool {
	now := s.bitsOf(q)
	switch {
	case (now.value^b.value)&now.mask&b.mask != 0:
		return false
	case b.mask&^now.mask == 0:
		return true
	}
	b = known{b.mask | now.mask, b.value | now.value}
	note(s, s.bits, q, b)
	if b.mask == ^uint32(0) && s.not[ruledOut{q, b.value}] {
		return false
	}
	if r, ok := s.ranges[q]; ok && (b.value > r.high || b.value|^b.mask < r.low) {
		return false
	}
	return s.spread(&s.all[q], b)
}

// spread notes what the bits of a quantity imply for its operands.
func (s *values) spread(d *definition, b known) bool {
	if d.kind == loaded {
		for i := range uint32(d.size) {
			at, shift := cell{d.a, d.k + i}, 8*(uint32(d.size)-1-i)
			note(s, s.cells, at, known{b.mask >> shift & 0xff, b.value >> shift & 0xff})
		}
		return true
	}
	n, ok := s.number(d.b)
	if d.kind != computed || !ok {
		return true
	}
	switch d.sign {
	case '&':
		return s.learn(d.a, known{b.mask & n, b.value & n})
	case '|':
		return s.learn(d.a, known{b.mask &^ n, b.value &^ n})
	case '^':
		return s.learn(d.a, known{b.mask, (b.value ^ n) & b.mask})
	case '*', '/':
		return true
	}
	left, ok := shift(d.sign, n)
	switch {
	case !ok:
		return true
	case left >= 0:
		return s.learn(d.a, known{b.mask >> left, b.value >> left})
	}
	return s.learn(d.a, known{b.mask << -left, b.value << -left})
}
