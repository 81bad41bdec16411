package filter

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Registers of the compiled function: its argument, a struct parsed *, and its
// result by the calling convention, and two it may spoil.
const (
	regParsed = asm.R1
	regField  = asm.R2
	regWide   = asm.R3
	regResult = asm.R0
)

// Where a block may go besides to another block.
const (
	accept = -1
	reject = -2
)

// block tests one atom and goes on to another block, or ends.
type block struct {
	atom    atom
	yes, no int
}

// Instructions compiles the expression to the body of
//
//	int filter(const struct parsed *p)
//
// which returns 1 for packets to accept and 0 for others, also when p is NULL,
// as the verifier demands of a global function. The instructions carry no
// symbol. The caller owns them. The error matches [ErrTooLarge] when a jump
// would be longer than BPF allows.
func (e *Expr) Instructions() (asm.Instructions, error) {
	c := &compiler{}
	entry := accept
	if !e.All() {
		entry = c.build(lower(e.root), accept, reject)
	}
	return assemble(c.finish(), entry)
}

// compiler collects blocks from the last to the first, so that both ways out of
// a block are known when it is made.
type compiler struct {
	blocks []block
}

// build adds the blocks of c and returns the first to run.
func (b *compiler) build(c cond, yes, no int) int {
	switch c.op {
	case opNot:
		return b.build(c.kids[0], no, yes)
	case opAnd:
		for _, k := range slices.Backward(c.kids) {
			yes = b.build(k, yes, no)
		}
		return yes
	case opOr:
		for _, k := range slices.Backward(c.kids) {
			no = b.build(k, yes, no)
		}
		return no
	}
	b.blocks = append(b.blocks, block{c.atom, yes, no})
	return len(b.blocks) - 1
}

// finish returns the blocks in the order they run, so that every jump is
// forward and the entry is the first.
func (b *compiler) finish() []block {
	n := len(b.blocks)
	turn := func(i int) int {
		if i < 0 {
			return i
		}
		return n - 1 - i
	}
	slices.Reverse(b.blocks)
	for i, k := range b.blocks {
		b.blocks[i].yes, b.blocks[i].no = turn(k.yes), turn(k.no)
	}
	return b.blocks
}
