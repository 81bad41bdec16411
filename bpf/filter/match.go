package filter

import "encoding/binary"

// maxOffset bounds the offsets that a filter reads, as in the XDP program, whose verifier needs a
// bound. No header, and no driver's first buffer, extends beyond it.
const maxOffset = 0x7fff

// Matcher evaluates an expression on whole packets, as the compiled filter does. It
// belongs to one goroutine.
type Matcher struct {
	program program
	packet  []byte
	length  uint32
	a, x    uint32
	words   [maxWords]uint32
}

// Matcher returns a Matcher for the expression.
func (e *Expr) Matcher() *Matcher { return &Matcher{program: e.compiled()} }

// Match reports whether the expression accepts an Ethernet frame. It keeps no reference to the
// frame and does not allocate.
func (m *Matcher) Match(frame []byte) bool { return m.MatchCut(frame, len(frame)) }

// MatchCut is Match for a frame of length bytes of which only the beginning was kept. A test of
// bytes that were cut off rejects the frame, as in tcpdump.
func (m *Matcher) MatchCut(frame []byte, length int) bool {
	m.packet, m.length = frame, uint32(length)
	m.words = [maxWords]uint32{}
	at := m.program.entry
	for at >= 0 {
		b := &m.program.blocks[at]
		for i := range b.code {
			if !m.run(&b.code[i]) {
				m.packet = nil
				return false
			}
		}
		at = b.no
		if b.holds(m.a, m.x) {
			at = b.yes
		}
	}
	m.packet = nil
	return at == accept
}

// holds compares A.
func (l *leaf) holds(a, x uint32) bool {
	v := l.value
	if l.withX {
		v = x
	}
	switch l.how {
	case above:
		return a > v
	case atLeast:
		return a >= v
	}
	return a == v
}

// run runs one instruction; false: the packet is rejected.
func (m *Matcher) run(i *instr) (ok bool) {
	ok = true
	switch i.op {
	case opLdAbs:
		m.a, ok = m.load(0, i.k, i.size)
	case opLdInd:
		m.a, ok = m.load(m.x, i.k, i.size)
	case opLdxMSH:
		m.x, ok = m.load(0, i.k, 1)
		m.x = 4 * (m.x & 15)
	case opLdImm:
		m.a = i.k
	case opLdLen:
		m.a = m.length
	case opLdMem:
		m.a = m.words[i.k]
	case opLdxMem:
		m.x = m.words[i.k]
	case opSt:
		m.words[i.k] = m.a
	case opALU:
		m.a, ok = calculate(i.sign, m.a, i.k)
	case opALUX:
		m.a, ok = calculate(i.sign, m.a, m.x)
	case opNeg:
		m.a = -m.a
	case opTAX:
		m.x = m.a
	case opTXA:
		m.a = m.x
	case opChain:
		m.a, ok = chain(m.packet, *i)
	}
	return ok
}

// load reads a number of size bytes in network order.
func (m *Matcher) load(x, k uint32, size uint8) (uint32, bool) {
	if x > maxOffset || k > maxOffset || int(x+k)+int(size) > len(m.packet) {
		return 0, false
	}
	b := m.packet[x+k:]
	switch size {
	case 1:
		return uint32(b[0]), true
	case 2:
		return uint32(binary.BigEndian.Uint16(b)), true
	}
	return binary.BigEndian.Uint32(b), true
}
