package filter

import "slices"

// Targets of a block besides other blocks.
const (
	accept = -1
	reject = -2
)

// block makes one test. Then it continues with another block, always a later one, or ends.
type block struct {
	*leaf
	yes, no int
}

// program is a compiled expression: its blocks, and the entry, which is the result when there are
// no blocks. The zero value is not valid.
type program struct {
	blocks []block
	entry  int
}

// compile makes blocks of an expression.
func compile(c cond) program {
	b := &compiler{}
	entry := b.build(c, accept, reject)
	return shorten(b.finish(entry))
}

// rejectsAll reports whether no path leads to acceptance. A path may stay that no packet takes: shorten knows only what the
// same code has answered before.
func (p program) rejectsAll() bool {
	return p.entry != accept && !slices.ContainsFunc(p.blocks, func(b block) bool { return b.yes == accept || b.no == accept })
}

// compiler collects blocks from the last to the first, so that both exits of a block are known when
// it is created.
type compiler struct {
	blocks []block
}

// build adds the blocks of c and returns the first to run.
func (b *compiler) build(c cond, yes, no int) int {
	switch {
	case c.leaf != nil:
		b.blocks = append(b.blocks, block{c.leaf, yes, no})
		return len(b.blocks) - 1
	case c.op == opNot:
		return b.build(c.kids[0], no, yes)
	case c.op == opAnd:
		for _, k := range slices.Backward(c.kids) {
			yes = b.build(k, yes, no)
		}
		return yes
	default:
		for _, k := range slices.Backward(c.kids) {
			no = b.build(k, yes, no)
		}
		return no
	}
}

// finish returns the blocks in the order they run, so that every jump is forward.
func (b *compiler) finish(entry int) program {
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
	return program{b.blocks, turn(entry)}
}
