package filter

// quantity is a number that code computes from a packet, the same for the same computation. 0 is none.
type quantity int32

// definition says how a quantity is computed.
type definition struct {
	kind kindOf
	sign byte  // of computed
	size uint8 // of loaded
	k    uint32
	a, b quantity
}

type kindOf uint8

const (
	anything kindOf = iota // k tells one from another
	constant
	length
	loaded   // size bytes of the packet at k behind a
	computed // a sign b
	asked    // 1 if a compares with b as k says, else 0
)

// between are the numbers from low to high.
type between struct{ low, high uint32 }

var whole = between{0, 1<<32 - 1}

// known are the bits of a number that are known: those in mask are as in value.
type known struct{ mask, value uint32 }

// cell is a byte of the packet, at a constant or behind a quantity.
type cell struct {
	base quantity
	at   uint32
}

// number of a quantity that it is not.
type ruledOut struct {
	of quantity
	n  uint32
}

// values are the quantities of a program and what is known of them on the way that is being tried.
type values struct {
	all    []definition
	ids    map[definition]quantity
	ranges map[quantity]between
	bits   map[quantity]known
	cells  map[cell]known
	not    map[ruledOut]bool
	words  [maxWords]quantity
	trail  []func() // takes back what was noted, the last first
	left   int      // how much may still be looked at
}

func newValues(left int) *values {
	return &values{
		all: make([]definition, 1), ids: map[definition]quantity{}, ranges: map[quantity]between{}, bits: map[quantity]known{},
		cells: map[cell]known{}, not: map[ruledOut]bool{}, left: left,
	}
}

// undo removes the facts that were added since the trail had this length.
func (s *values) undo(to int) {
	for len(s.trail) > to {
		last := len(s.trail) - 1
		s.trail[last]()
		s.trail = s.trail[:last]
	}
}

// note sets a key of a map until undo takes it back.
func note[K comparable, V interface{}](s *values, in map[K]V, key K, value V) {
	old, had := in[key]
	s.trail = append(s.trail, func() {
		if had {
			in[key] = old
		} else {
			delete(in, key)
		}
	})
	in[key] = value
}

// of is the quantity with a definition.
func (s *values) of(d definition) quantity {
	if q, ok := s.ids[d]; ok {
		return q
	}
	q := quantity(len(s.all))
	s.all, s.ids[d] = append(s.all, d), q
	return q
}

func (s *values) constant(n uint32) quantity { return s.of(definition{kind: constant, k: n}) }

// fresh returns a quantity of which nothing is known.
func (s *values) fresh() quantity { return s.of(definition{kind: anything, k: uint32(len(s.all))}) }

// number is the value of a constant.
func (s *values) number(q quantity) (uint32, bool) {
	d := &s.all[q]
	return d.k, d.kind == constant
}

// math is a calculation. What divides by zero accepts no packet, so that its value does not matter.
func (s *values) math(sign byte, a, b quantity) quantity {
	x, isX := s.number(a)
	y, isY := s.number(b)
	if isX && isY {
		if n, ok := calculate(sign, x, y); ok {
			return s.constant(n)
		}
		return s.fresh()
	}
	return s.of(definition{kind: computed, sign: sign, a: a, b: b})
}

// run brings the code of a test to what A and X are in the end.
func (s *values) run(code []instr) (a, x quantity) {
	a, x = s.fresh(), s.fresh()
	for i := range code {
		n := &code[i]
		switch n.op {
		case opLoad:
			a = s.of(definition{kind: loaded, size: n.size, k: n.k})
		case opLoadAtX:
			a = s.loadAt(x, n)
		case opHeaderToX:
			first := s.of(definition{kind: loaded, size: 1, k: n.k})
			x = s.math('*', s.math('&', first, s.constant(15)), s.constant(4))
		case opNumber:
			a = s.constant(n.k)
		case opNumberToX:
			x = s.constant(n.k)
		case opLength:
			a = s.of(definition{kind: length})
		case opRecall:
			a = s.words[n.k]
		case opRecallToX:
			x = s.words[n.k]
		case opKeep:
			old := s.words[n.k]
			s.trail = append(s.trail, func() { s.words[n.k] = old })
			s.words[n.k] = a
		case opMath:
			a = s.math(n.sign, a, s.constant(n.k))
		case opMathX:
			a = s.math(n.sign, a, x)
		case opNegate:
			a = s.math('-', s.constant(0), a)
		case opAToX:
			x = a
		case opXToA:
			a = x
		default: // opChain: of headers that are gone over nothing is known
			a = s.fresh()
		}
	}
	return a, x
}

// loadAt is a load of bytes of the packet relative to X.
func (s *values) loadAt(x quantity, n *instr) quantity {
	if base, ok := s.number(x); ok {
		return s.of(definition{kind: loaded, size: n.size, k: base + n.k})
	}
	return s.of(definition{kind: loaded, size: n.size, k: n.k, a: x})
}
