package filter

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
)

// Registers of the compiled function. Its arguments are the context and the packet's
// length; the result is in regA by the calling convention.
const (
	regA       = asm.R0
	regContext = asm.R1
	regLength  = asm.R2 // at the start only
	regSpare   = asm.R2
	regData    = asm.R3
	regEnd     = asm.R4
	regX       = asm.R5
	regKept    = asm.R6 // the context, over a call
)

// Where the stack frame has the length and the words of scratch memory.
const (
	frameLength = -8
	frameWords  = -16
)

// chainSymbol is the function of the XDP program that walks over headers.
const chainSymbol = "unifiedd_chain"

// Instructions compiles the expression to the body of
//
//	int filter(struct xdp_md *ctx, __u32 length)
//
// which returns 1 for packets to accept and 0 for others. The instructions carry no
// symbol; with protochain they call unifiedd_chain. The caller owns them. The error
// matches [ErrTooLarge] when a jump would be longer than BPF allows.
func (e *Expr) Instructions() (asm.Instructions, error) {
	p := e.compiled()
	a := &assembler{starts: make([]int, len(p.blocks)), known: make([]int, len(p.blocks))}
	for i := range a.known {
		a.known[i] = math.MaxInt
	}
	a.begin(p.blocks)
	if p.entry < 0 {
		a.end(p.entry)
	}
	for i, b := range p.blocks {
		a.block(i, b)
	}
	if err := a.link(); err != nil {
		return nil, err
	}
	return a.ins, nil
}

// compiled returns the program of an expression. For the empty expression it accepts everything.
func (e *Expr) compiled() program {
	if e.All() {
		return program{entry: accept}
	}
	return e.program
}

// jump is an instruction that jumps to a block, and the slot of the instruction.
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
	known  []int // how many bytes of the packet are checked at the start of each block
	have   int   // the same, here
	calls  bool
}

func (a *assembler) add(ins ...asm.Instruction) {
	for _, i := range ins {
		a.ins = append(a.ins, i)
		a.slots += int(i.Size() / asm.InstructionSize)
	}
}

// begin reads the context, keeps the length if a test needs it, and clears the words that may be
// read before they are written.
func (a *assembler) begin(blocks []block) {
	uses, words := map[opcode]bool{}, uint32(0)
	for _, b := range blocks {
		for _, i := range b.code {
			uses[i.op] = true
			if i.op == opLdMem || i.op == opLdxMem || i.op == opSt {
				words = max(words, i.k+1)
			}
		}
	}
	if len(blocks) == 0 {
		return
	}
	if uses[opLdLen] {
		a.add(asm.StoreMem(asm.R10, frameLength, regLength, asm.Word))
	}
	if a.calls = uses[opChain]; a.calls {
		a.add(asm.Mov.Reg(regKept, regContext))
	}
	if words > 0 {
		a.add(asm.Mov.Imm(regA, 0))
	}
	for w := range words {
		a.add(asm.StoreMem(asm.R10, wordAt(w), regA, asm.Word))
	}
	a.packet(regContext)
}

// packet reads where the packet begins and ends.
func (a *assembler) packet(context asm.Register) {
	a.add(asm.LoadMem(regData, context, 0, asm.Word), asm.LoadMem(regEnd, context, 4, asm.Word))
	a.have = 0
}

func wordAt(word uint32) int16 { return frameWords - 4*int16(word) }

// end returns from the function: accept or reject.
func (a *assembler) end(way int) {
	result := int32(0)
	if way == accept {
		result = 1
	}
	a.add(asm.Mov.Imm(regA, result), asm.Return())
}

// skipEnd adds a jump over the end that the caller adds next.
func (a *assembler) skipEnd(ins asm.Instruction) {
	ins.Offset = 2
	a.add(ins)
}

// rejectUnless rejects the packet unless the jump is taken.
func (a *assembler) rejectUnless(ins asm.Instruction) {
	a.skipEnd(ins)
	a.end(reject)
}

// jump adds a jump to a block; link sets its offset.
func (a *assembler) jump(ins asm.Instruction, block int) {
	a.jumps = append(a.jumps, jump{len(a.ins), a.slots, block})
	a.add(ins)
}

// block adds the code of a block and both of its exits.
func (a *assembler) block(i int, b block) {
	a.starts[i] = a.slots
	if a.have = a.known[i]; a.have == math.MaxInt {
		a.have = 0
	}
	raw := comparesRaw(b.leaf)
	for n := range b.code {
		a.instr(b.code, n, raw)
	}
	for _, to := range []int{b.yes, b.no} {
		if to >= 0 {
			a.known[to] = min(a.known[to], a.have)
		}
	}
	l := *b.leaf
	if raw {
		l.value = network(l.value, l.code)
	}
	a.branch(block{&l, b.yes, b.no}, i+1)
}

// comparesRaw reports whether the leaf tests bytes of the packet, possibly masked, for equality.
// The compiler then swaps the constant once, instead of the bytes of each packet.
func comparesRaw(l *leaf) bool {
	if l.how != equal || l.withX || len(l.code) == 0 {
		return false
	}
	seen := false
	for _, i := range l.code {
		switch {
		case i.op == opLdAbs || i.op == opLdInd:
			seen = true
		case seen && (i.op != opALU || i.sign != '&'):
			return false
		}
	}
	return seen
}

// network converts a number to the byte order in which this machine reads the bytes that code loads
// last.
func network(v uint32, code []instr) uint32 {
	var b [4]byte
	for _, i := range code {
		switch i.size {
		case 2:
			if v > math.MaxUint16 {
				return v // more than the bytes can be
			}
			binary.BigEndian.PutUint16(b[:], uint16(v))
			v = uint32(binary.NativeEndian.Uint16(b[:]))
		case 4:
			binary.BigEndian.PutUint32(b[:], v)
			v = binary.NativeEndian.Uint32(b[:])
		}
	}
	return v
}

// fits is the mask of the number that code loads last.
func fits(code []instr) uint32 {
	mask := uint32(math.MaxUint32)
	for _, i := range code {
		if i.size != 0 {
			mask = math.MaxUint32 >> (32 - 8*uint32(i.size))
		}
	}
	return mask
}

var sizes = map[uint8]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word}

// instr adds instruction n of code.
func (a *assembler) instr(code []instr, n int, raw bool) {
	switch i := code[n]; i.op {
	case opLdAbs:
		a.load(regA, i.k, i.size, raw)
	case opLdInd:
		a.loadAtX(i, raw)
	case opLdxMSH:
		a.load(regX, i.k, 1, true)
		a.add(asm.And.Imm32(regX, 15), asm.LSh.Imm32(regX, 2))
	case opLdImm:
		a.add(asm.Mov.Imm32(regA, int32(i.k)))
	case opLdLen:
		a.add(asm.LoadMem(regA, asm.R10, frameLength, asm.Word))
	case opLdMem:
		a.add(asm.LoadMem(regA, asm.R10, wordAt(i.k), asm.Word))
	case opLdxMem:
		a.add(asm.LoadMem(regX, asm.R10, wordAt(i.k), asm.Word))
	case opSt:
		a.add(asm.StoreMem(asm.R10, wordAt(i.k), regA, asm.Word))
	case opALU:
		k := i.k
		if raw {
			k = network(k&fits(code[:n]), code[:n])
		}
		a.add(operations[i.sign].Imm32(regA, int32(k)))
	case opALUX:
		a.mathX(i.sign)
	case opNeg:
		a.add(asm.Neg.Imm32(regA, 0))
	case opTAX:
		a.add(asm.Mov.Reg32(regX, regA))
	case opTXA:
		a.add(asm.Mov.Reg32(regA, regX))
	case opChain:
		a.chain(i)
	}
}

var operations = map[byte]asm.ALUOp{
	'+': asm.Add, '-': asm.Sub, '*': asm.Mul, '/': asm.Div, '%': asm.Mod,
	'&': asm.And, '|': asm.Or, '^': asm.Xor, 'l': asm.LSh, 'r': asm.RSh,
}

// mathX calculates with X, which may be zero, or too much to shift by.
func (a *assembler) mathX(sign byte) {
	switch sign {
	case '/', '%':
		a.rejectUnless(asm.JNE.Imm32(regX, 0, ""))
	case 'l', 'r':
		small := asm.JLT.Imm32(regX, 32, "")
		small.Offset = 2
		a.add(small, asm.Mov.Imm32(regA, 0), asm.Mov.Imm32(regX, 0))
	}
	a.add(operations[sign].Reg32(regA, regX))
}

// load loads size bytes at k into a register.
func (a *assembler) load(to asm.Register, k uint32, size uint8, raw bool) {
	if k > maxOffset-4 {
		a.never(to)
		return
	}
	if end := int(k) + int(size); end > a.have {
		a.add(asm.Mov.Reg(regSpare, regData), asm.Add.Imm(regSpare, int32(end)))
		a.rejectUnless(asm.JLE.Reg(regSpare, regEnd, ""))
		a.have = end
	}
	a.add(asm.LoadMem(to, regData, int16(k), sizes[size]))
	a.order(to, size, raw)
}

// never rejects the packet, because the bytes lie beyond every possible end. The code after it
// satisfies the verifier, which does not know the length.
func (a *assembler) never(to asm.Register) {
	a.add(asm.Mov.Imm32(to, 0))
	a.rejectUnless(asm.JGT.Reg(regData, regEnd, ""))
}

// loadAtX loads size bytes at X and k into A.
func (a *assembler) loadAtX(i instr, raw bool) {
	if i.k > maxOffset-4 {
		a.never(regA)
		return
	}
	a.rejectUnless(asm.JLE.Imm32(regX, maxOffset, ""))
	a.add(asm.Mov.Reg32(regA, regX), asm.Add.Reg(regA, regData), asm.Mov.Reg(regSpare, regA),
		asm.Add.Imm(regSpare, int32(i.k)+int32(i.size)))
	a.rejectUnless(asm.JLE.Reg(regSpare, regEnd, ""))
	a.add(asm.LoadMem(regA, regA, int16(i.k), sizes[i.size]))
	a.order(regA, i.size, raw)
}

// order converts a number from network byte order.
func (a *assembler) order(reg asm.Register, size uint8, raw bool) {
	if !raw && size > 1 {
		a.add(asm.HostTo(asm.BE, reg, sizes[size]))
	}
}

// chain calls the function that walks over headers, which overwrites all registers.
func (a *assembler) chain(i instr) {
	six := int32(0)
	if i.six {
		six = 1
	}
	a.add(asm.Mov.Reg(regContext, regKept), asm.Mov.Imm32(asm.R2, int32(i.k)), asm.Mov.Imm32(asm.R3, int32(i.want)), asm.Mov.Imm32(asm.R4, six),
		asm.Call.Label(chainSymbol))
	a.packet(regKept)
	a.rejectUnless(asm.JLE.Imm32(regA, math.MaxUint8, ""))
}

// operators are the jumps for a comparison that fails, and for one that holds.
var operators = map[compare][2]asm.JumpOp{
	equal:   {asm.JNE, asm.JEq},
	atLeast: {asm.JLT, asm.JGE},
	above:   {asm.JLE, asm.JGT},
}

// compared is the jump taken when the comparison holds, or fails.
func (l *leaf) compared(holds bool) asm.Instruction {
	o := operators[l.how][0]
	if holds {
		o = operators[l.how][1]
	}
	if l.withX {
		return o.Reg32(regA, regX, "")
	}
	return o.Imm32(regA, int32(l.value), "")
}

// branch compares and adds both exits of the block; next is the block that follows. An exit that
// ends the function does so right here, and the jump goes to the next test. The verifier walks the
// straight path first. So even a long list of alternatives has few pending paths, and its jumps are
// short.
func (a *assembler) branch(b block, next int) {
	switch {
	case b.yes < 0 && b.no < 0:
		a.skipEnd(b.compared(false))
		a.end(b.yes)
		a.end(b.no)
	case b.yes < 0:
		a.jump(b.compared(false), b.no)
		a.end(b.yes)
	case b.no < 0:
		a.jump(b.compared(true), b.yes)
		a.end(b.no)
	case b.yes == next:
		a.jump(b.compared(false), b.no)
	default:
		a.jump(b.compared(true), b.yes)
		if b.no != next {
			a.jump(asm.Ja.Label(""), b.no)
		}
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
