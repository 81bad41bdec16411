package filter

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Ancillary data of a packet on a packet socket, by the offset at which classic BPF loads it
// (include/uapi/linux/filter.h).
const (
	ancillary  = -0x1000
	tagNumber  = ancillary + 44 // the tag that the kernel has removed from the packet
	tagPresent = ancillary + 48 // whether there is one
)

// maxSocket is the largest number of instructions of a socket's filter (BPF_MAXINSNS).
const maxSocket = 4096

// Socket compiles the expression to classic BPF for a packet socket, which returns keep for packets
// to accept and 0 for others. A process needs no further right to attach it.
//
// The meaning is that of libpcap on a live interface. The kernel removes the outermost VLAN tag from
// a packet before sockets see it, so the first vlan of the text also tests the removed tag, and tests
// without vlan before them do not see that a packet has one. The caller owns the instructions. The
// error matches [ErrTooLarge] if there are more than the kernel takes; expressions with protochain
// have no such program.
func (e *Expr) Socket(keep uint32) ([]unix.SockFilter, error) {
	a := &socketAssembler{keep: keep}
	if e.All() {
		return []unix.SockFilter{a.end(accept)}, nil
	}
	if chains(e.program) {
		return nil, &Error{problem: "a socket's filter has no loops, which protochain needs (name the protocol without chain)"}
	}
	g := newGenerator(e.link)
	g.live = true
	c := g.lower(e.root)
	if g.err != nil {
		return nil, g.err
	}
	p := compile(c)
	if a.clear(p.blocks); p.entry < 0 {
		return append(a.start, a.end(p.entry)), nil
	}
	ins := a.assemble(p)
	if len(ins) > maxSocket {
		return nil, tooLarge(0, fmt.Sprintf("%d instructions, and a packet socket takes %d: shorten the expression", len(ins), maxSocket))
	}
	return ins, nil
}

// socketAssembler assembles a program for a socket.
type socketAssembler struct {
	keep  uint32
	start []unix.SockFilter
	code  [][]unix.SockFilter // of each block, without its jumps
	far   []bool              // the block's exits are beyond the reach of a conditional jump
	place []int               // of each block
}

// end returns from the filter.
func (a *socketAssembler) end(way int) unix.SockFilter {
	if way == accept {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: a.keep}
	}
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
}

// clear zeroes the words of scratch memory in use: the kernel refuses to load one that may not have
// been written.
func (a *socketAssembler) clear(blocks []block) {
	words := uint32(0)
	for _, b := range blocks {
		for _, i := range b.code {
			if i.op == opLdMem || i.op == opLdxMem || i.op == opSt {
				words = max(words, i.k+1)
			}
		}
	}
	if words > 0 {
		a.start = append(a.start, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_IMM})
	}
	for w := range words {
		a.start = append(a.start, unix.SockFilter{Code: unix.BPF_ST, K: w})
	}
}

// assemble joins the code of all blocks. Two instructions at the end accept and reject.
func (a *socketAssembler) assemble(p program) []unix.SockFilter {
	a.code, a.far, a.place = make([][]unix.SockFilter, len(p.blocks)), make([]bool, len(p.blocks)), make([]int, len(p.blocks)+1)
	for i, b := range p.blocks {
		for _, in := range b.code {
			a.code[i] = append(a.code[i], a.instr(in)...)
		}
	}
	for a.arrange(p) {
	}
	all := a.start
	for i, b := range p.blocks {
		all = append(all, a.code[i]...)
		all = append(all, a.branch(i, b)...)
	}
	return append(all, a.end(accept), a.end(reject))
}

// jumps returns how many instructions the exits of a block take: a conditional jump, and if one exit
// is far two jumps that reach it.
func (a *socketAssembler) jumps(i int) int {
	if a.far[i] {
		return 3
	}
	return 1
}

// arrange places the blocks, and reports whether a block needs longer jumps than before.
func (a *socketAssembler) arrange(p program) (changed bool) {
	at := len(a.start)
	for i := range p.blocks {
		a.place[i] = at
		at += len(a.code[i]) + a.jumps(i)
	}
	a.place[len(p.blocks)] = at
	for i, b := range p.blocks {
		from := a.place[i] + len(a.code[i]) + 1
		if !a.far[i] && max(a.target(b.yes), a.target(b.no))-from > math.MaxUint8 {
			a.far[i], changed = true, true
		}
	}
	return changed
}

// target returns the place of an exit.
func (a *socketAssembler) target(to int) int {
	end := a.place[len(a.place)-1]
	switch to {
	case accept:
		return end
	case reject:
		return end + 1
	}
	return a.place[to]
}

var socketJumps = map[compare]uint16{equal: unix.BPF_JEQ, above: unix.BPF_JGT, atLeast: unix.BPF_JGE}

// branch compares, and jumps to the exits of block i.
func (a *socketAssembler) branch(i int, b block) []unix.SockFilter {
	in := unix.SockFilter{Code: unix.BPF_JMP | socketJumps[b.how] | unix.BPF_K, K: b.value}
	if b.withX {
		in.Code, in.K = unix.BPF_JMP|socketJumps[b.how]|unix.BPF_X, 0
	}
	from := a.place[i] + len(a.code[i]) + 1
	yes, no := a.target(b.yes)-from, a.target(b.no)-from
	if !a.far[i] {
		in.Jt, in.Jf = uint8(yes), uint8(no)
		return []unix.SockFilter{in}
	}
	in.Jt, in.Jf = 0, 1
	always := uint16(unix.BPF_JMP | unix.BPF_JA)
	return []unix.SockFilter{in, {Code: always, K: uint32(yes - 1)}, {Code: always, K: uint32(no - 2)}}
}

var socketSizes = map[uint8]uint16{1: unix.BPF_B, 2: unix.BPF_H, 4: unix.BPF_W}

var socketSigns = map[byte]uint16{
	'+': unix.BPF_ADD, '-': unix.BPF_SUB, '*': unix.BPF_MUL, '/': unix.BPF_DIV, '%': unix.BPF_MOD,
	'&': unix.BPF_AND, '|': unix.BPF_OR, '^': unix.BPF_XOR, 'l': unix.BPF_LSH, 'r': unix.BPF_RSH,
}

// socketCodes are the operations that have a code of their own, whose operand is k.
var socketCodes = map[opcode]uint16{
	opLdxMSH: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, opLdImm: unix.BPF_LD | unix.BPF_IMM, opLdxImm: unix.BPF_LDX | unix.BPF_IMM,
	opLdLen: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN, opLdMem: unix.BPF_LD | unix.BPF_MEM, opLdxMem: unix.BPF_LDX | unix.BPF_MEM, opSt: unix.BPF_ST,
	opNeg: unix.BPF_ALU | unix.BPF_NEG, opTAX: unix.BPF_MISC | unix.BPF_TAX, opTXA: unix.BPF_MISC | unix.BPF_TXA,
}

// instr translates an instruction. A load beyond every packet rejects, as does a division by zero.
func (a *socketAssembler) instr(i instr) []unix.SockFilter {
	one := func(code uint16, k uint32) []unix.SockFilter { return []unix.SockFilter{{Code: code, K: k}} }
	switch i.op {
	case opTag:
		return one(unix.BPF_LD|unix.BPF_H|unix.BPF_ABS, i.k)
	case opLdAbs, opLdxMSH:
		if i.k > maxOffset {
			return []unix.SockFilter{a.end(reject)}
		}
		if i.op == opLdAbs {
			return one(unix.BPF_LD|socketSizes[i.size]|unix.BPF_ABS, i.k)
		}
	case opLdInd:
		return one(unix.BPF_LD|socketSizes[i.size]|unix.BPF_IND, i.k)
	case opALU:
		switch {
		case i.k == 0 && (i.sign == '/' || i.sign == '%'):
			return []unix.SockFilter{a.end(reject)}
		case i.k > 31 && (i.sign == 'l' || i.sign == 'r'):
			return one(unix.BPF_LD|unix.BPF_IMM, 0)
		}
		return one(unix.BPF_ALU|socketSigns[i.sign]|unix.BPF_K, i.k)
	case opALUX:
		return one(unix.BPF_ALU|socketSigns[i.sign]|unix.BPF_X, 0)
	}
	return one(socketCodes[i.op], i.k)
}
