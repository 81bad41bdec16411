package filter

import "encoding/binary"

// Matcher evaluates an expression on whole packets, as the XDP program and the
// compiled filter do together. It belongs to one goroutine.
type Matcher struct {
	all  bool
	cond cond
	seen parsed
}

// Matcher returns what evaluates the expression.
func (e *Expr) Matcher() *Matcher {
	if e.All() {
		return &Matcher{all: true}
	}
	return &Matcher{cond: lower(e.root)}
}

// Match reports whether the expression accepts an Ethernet frame. It keeps
// nothing of it and allocates nothing.
func (m *Matcher) Match(frame []byte) bool {
	if m.all {
		return true
	}
	m.seen.parse(frame)
	return m.cond.holds(&m.seen)
}

// holds evaluates a condition.
func (c *cond) holds(p *parsed) bool {
	switch c.op {
	case opNot:
		return !c.kids[0].holds(p)
	case opAnd:
		for i := range c.kids {
			if !c.kids[i].holds(p) {
				return false
			}
		}
		return true
	case opOr:
		for i := range c.kids {
			if c.kids[i].holds(p) {
				return true
			}
		}
		return false
	}
	return c.atom.holds(p)
}

// holds compares one field.
func (m *atom) holds(p *parsed) bool {
	v := p.load(m.offset, m.size) & m.mask
	switch m.how {
	case atLeast:
		return v >= m.value
	case atMost:
		return v <= m.value
	}
	return v == m.value
}

// load reads a field of size bytes as the machine does.
func (p *parsed) load(offset int16, size int) uint64 {
	b := p[offset:]
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}
