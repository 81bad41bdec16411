package filter

// quantity is a number that code computes from a packet. The same computation has the same quantity. 0 is
// none.
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
	anything kindOf = iota // k distinguishes them
	constant
	length
	loaded   // size bytes of the packet at a + k
	computed // a sign b
	asked    // 1 if a compares with b as k says, else 0
)

// between are the numbers from low to high.
type between struct{ low, high uint32 }

var whole = between{0, 1<<32 - 1}

// known are the bits of a number that are known: those in mask are as in value.
type known struct{ mask, value uint32 }

// cell is a byte of the packet, at a constant offset or one relative to a quantity.
type cell struct {
	base quantity
	at   uint32
}

// ruledOut is a number that a quantity does not have.
type ruledOut struct {
	of quantity
	n  uint32
}

// values has the quantities of a program, and the facts about them on the current path.
type values struct {
	all    []definition
	ids    map[definition]quantity
	ranges map[quantity]between
	bits   map[quantity]known
	cells  map[cell]known
	not    map[ruledOut]bool
	words  [maxWords]quantity
	trail  []func() // undo the notes, the last one first
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

// note sets a key of a map until undo restores it.
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

// of returns the quantity with a definition.
func (s *values) of(d definition) quantity {
	if q, ok := s.ids[d]; ok {
		return q
	}
	q := quantity(len(s.all))
	s.all, s.ids[d] = append(s.all, d), q
	return q
}

func (s *values) constant(n uint32) quantity { return s.of(definition{kind: constant, k: n}) }

// fresh returns a quantity without known facts.
func (s *values) fresh() quantity { return s.of(definition{kind: anything, k: uint32(len(s.all))}) }

// number is the value of a constant.
func (s *values) number(q quantity) (uint32, bool) {
	d := &s.all[q]
	return d.k, d.kind == constant
}

// math returns a calculation. A division by zero accepts no packet, so that its value does not
// matter.
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

// run returns what A and X are after the code of a test.
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
		default: // opChain: nothing is known about the headers
			a = s.fresh()
		}
	}
	return a, x
}

// loadAt returns a load of bytes of the packet relative to X.
func (s *values) loadAt(x quantity, n *instr) quantity {
	if base, ok := s.number(x); ok {
		return s.of(definition{kind: loaded, size: n.size, k: base + n.k})
	}
	return s.of(definition{kind: loaded, size: n.size, k: n.k, a: x})
}
