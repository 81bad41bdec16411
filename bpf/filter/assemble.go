package filter

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
)

// assemble makes instructions of the blocks; entry is 0, or how it all ends
// when there are none.
func assemble(blocks []block, entry int) (asm.Instructions, error) {
	a := &assembler{starts: make([]int, 0, len(blocks))}
	a.skipEnd(asm.JNE.Imm(regParsed, 0, ""))
	a.end(reject)
	if entry < 0 {
		a.end(entry)
	}
	for i, b := range blocks {
		a.starts = append(a.starts, a.slots)
		a.load(b.atom)
		a.branch(b, i+1)
	}
	if err := a.link(); err != nil {
		return nil, err
	}
	return a.ins, nil
}

// jump is an instruction that goes to a block, and the slot it stands in.
type jump struct {
	ins   int
	slot  int
	block int
}

// assembler appends instructions and remembers where each block starts. A slot
// is the unit of jump offsets; wide loads take two.
type assembler struct {
	ins    asm.Instructions
	slots  int
	starts []int // slot of each block
	jumps  []jump
}

func (a *assembler) add(ins ...asm.Instruction) {
	for _, i := range ins {
		a.ins = append(a.ins, i)
		a.slots += int(i.Size() / asm.InstructionSize)
	}
}

// end returns accept or reject.
func (a *assembler) end(way int) {
	result := int32(0)
	if way == accept {
		result = 1
	}
	a.add(asm.Mov.Imm(regResult, result), asm.Return())
}

// skipEnd adds a jump over the end that the caller adds next.
func (a *assembler) skipEnd(ins asm.Instruction) {
	ins.Offset = 2
	a.add(ins)
}

// jump adds a jump to a block; link sets its offset.
func (a *assembler) jump(ins asm.Instruction, block int) {
	a.jumps = append(a.jumps, jump{len(a.ins), a.slots, block})
	a.add(ins)
}

var sizes = map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word, 8: asm.DWord}

// load brings the masked field to regField.
func (a *assembler) load(m atom) {
	a.add(asm.LoadMem(regField, regParsed, m.offset, sizes[m.size]))
	switch {
	case m.mask == math.MaxUint64:
	case m.size == 8:
		a.add(asm.LoadImm(regWide, int64(m.mask), asm.DWord), asm.And.Reg(regField, regWide))
	default:
		a.add(asm.And.Imm32(regField, int32(uint32(m.mask))))
	}
	if m.size == 8 {
		a.add(asm.LoadImm(regWide, int64(m.value), asm.DWord))
	}
}

// operators are the jumps for a comparison that fails and one that holds.
var operators = map[compare][2]asm.JumpOp{
	equal:   {asm.JNE, asm.JEq},
	atLeast: {asm.JLT, asm.JGE},
	atMost:  {asm.JGT, asm.JLE},
}

// compared is the jump taken when the comparison behind load holds, or fails.
func compared(m atom, holds bool) asm.Instruction {
	o := operators[m.how][0]
	if holds {
		o = operators[m.how][1]
	}
	if m.size == 8 {
		return o.Reg(regField, regWide, "")
	}
	return o.Imm32(regField, int32(uint32(m.value)), "")
}

// branch compares and goes both ways out of the block. Blocks are built from the
// last to the first, so one way out is an end or next, the block that follows. A way that ends the function does so right here, and the jump leads
// on: the verifier walks the straight path first, so a list of alternatives has
// few paths waiting however long it is, and its jumps are short.
func (a *assembler) branch(b block, next int) {
	switch {
	case b.yes < 0 && b.no < 0:
		a.skipEnd(compared(b.atom, false))
		a.end(b.yes)
		a.end(b.no)
	case b.yes < 0:
		a.jump(compared(b.atom, false), b.no)
		a.end(b.yes)
	case b.no < 0:
		a.jump(compared(b.atom, true), b.yes)
		a.end(b.no)
	case b.yes == next:
		a.jump(compared(b.atom, false), b.no)
	default:
		a.jump(compared(b.atom, true), b.yes)
	}
}

// link sets the offsets of the jumps.
func (a *assembler) link() error {
	for _, j := range a.jumps {
		offset := a.starts[j.block] - (j.slot + 1)
		if offset > math.MaxInt16 {
			return fmt.Errorf("compile filter: a jump over %d instructions, %d at most (put long lists of alternatives outermost): %w",
				offset, math.MaxInt16, ErrTooLarge)
		}
		a.ins[j.ins].Offset = int16(offset)
	}
	return nil
}
