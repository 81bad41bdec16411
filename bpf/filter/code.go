package filter

// opcode is the operation of an instruction, as in classic BPF: an accumulator A, an index register
// X, and words of scratch memory.
type opcode uint8

const (
	opLdAbs  opcode = iota // A = size bytes of the packet at k
	opLdInd                // A = size bytes of the packet at X + k
	opLdxMSH               // X = the length of the IPv4 header at k
	opLdImm                // A = k
	opLdxImm               // X = k
	opLdLen                // A = the length of the packet
	opLdMem                // A = word k
	opLdxMem               // X = word k
	opSt                   // word k = A
	opALU                  // A = A sign k
	opALUX                 // A = A sign X
	opNeg                  // A = -A
	opTAX                  // X = A
	opTXA                  // A = X
	opTag                  // A = the data at offset k beside the packet, on a socket
	opChain                // A = the protocol at the end of the headers at k; see chain
)

// instr is one instruction. A load beyond the end of the packet and a division by zero end the
// filter, which then rejects the packet.
type instr struct {
	op   opcode
	sign byte  // of opALU and opALUX: + - * / % & | ^, or l and r for shifts
	size uint8 // of loads: 1, 2, 4
	six  bool  // of opChain: IPv6
	k    uint32
	want uint32 // of opChain: the protocol to stop at
}

// compare is how a leaf compares A with a number, or with X.
type compare uint8

const (
	equal compare = iota
	above
	atLeast
)

// leaf is one test: code that loads A, and a comparison.
type leaf struct {
	code  []instr
	how   compare
	withX bool
	value uint32
	id    int // the same for the same code, 0 for code that may differ from itself
}

// cond is a boolean expression over comparisons. Its kids are evaluated from left to right, and no
// further than needed. An and without kids is true.
type cond struct {
	op   op
	kids []cond
	leaf *leaf
}

func allOf(kids ...cond) cond { return cond{op: opAnd, kids: kids} }
func anyOf(kids ...cond) cond { return cond{op: opOr, kids: kids} }
func none(c cond) cond        { return cond{op: opNot, kids: []cond{c}} }

// pure reports whether code always computes the same from a packet. It does if it follows no
// headers and uses none of the first words, which keep their values.
func pure(code []instr, words uint32) bool {
	for _, i := range code {
		switch i.op {
		case opLdMem, opLdxMem, opSt:
			if i.k < words {
				return false
			}
		case opChain:
			return false
		}
	}
	return true
}

// calculate is opALU; not ok: a division by zero.
func calculate(sign byte, a, b uint32) (uint32, bool) {
	switch sign {
	case '+':
		return a + b, true
	case '-':
		return a - b, true
	case '*':
		return a * b, true
	case '&':
		return a & b, true
	case '|':
		return a | b, true
	case '^':
		return a ^ b, true
	case 'l':
		return a << b, true // of 32 or more: zero
	case 'r':
		return a >> b, true
	}
	if b == 0 {
		return 0, false
	}
	if sign == '%' {
		return a % b, true
	}
	return a / b, true
}
