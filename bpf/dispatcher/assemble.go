package dispatcher

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// functionName is the function of a dispatcher that a program takes the place of.
func functionName(n int) string { return fmt.Sprintf("prog%d", n) }

// load makes a dispatcher as the format says, in the kernel. With changes its functions are such as may change packets: since Linux 6.13 a
// program that does (bpf_xdp_adjust_meta and the like) can take the place of no other.
func load(f *format, changes bool) (*ebpf.Program, error) {
	value, err := f.bytes()
	if err != nil {
		return nil, err
	}
	config, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: ".rodata", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(value)), MaxEntries: 1,
		Flags: unix.BPF_F_RDONLY_PROG, Contents: []ebpf.MapKV{{Key: uint32(0), Value: value}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the dispatcher's map: %w", err)
	}
	defer config.Close() // the program has it, too
	spec := &ebpf.ProgramSpec{
		Name: programName, Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "Dual BSD/GPL",
		Instructions: instructions(f, config.FD(), changes),
	}
	if f.Fragments != 0 {
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("load the dispatcher: %w", err)
	}
	return p, nil
}

// instructions calls the functions in turn. What one returns is the result, unless its bit is among the actions after which
// the next one is called; after the last that is XDP_PASS. The map is read so that it belongs to the program.
func instructions(f *format, config int, changes bool) asm.Instructions {
	const packet, result, bit, pass = asm.R6, asm.R0, asm.R1, 2
	out := "out"
	ins := asm.Instructions{
		described(asm.LoadMapValue(asm.R2, config, 0), programName),
		asm.LoadMem(asm.R2, asm.R2, 0, asm.Byte),
		asm.Mov.Reg(packet, asm.R1),
	}
	for n := range int(f.Programs) {
		ins = append(ins,
			asm.Mov.Reg(asm.R1, packet),
			asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: -1}.WithReference(functionName(n)),
			asm.Mov.Imm(bit, 1),
			asm.LSh.Reg32(bit, result),
			asm.And.Imm32(bit, int32(f.Actions[n])),
			asm.JEq.Imm32(bit, 0, out),
		)
	}
	ins = append(ins, asm.Mov.Imm(result, pass), asm.Return().WithSymbol(out))
	for n := range int(f.Programs) {
		ins = append(ins, function(functionName(n), changes)...)
	}
	return ins
}

// function is one that only returns.
func function(name string, changes bool) asm.Instructions {
	if !changes {
		return asm.Instructions{described(asm.Mov.Imm(asm.R0, proceed), name), asm.Return()}
	}
	return asm.Instructions{
		described(asm.Mov.Imm(asm.R2, 0), name),
		asm.FnXdpAdjustTail.Call(), // by nothing
		asm.Mov.Imm(asm.R0, proceed),
		asm.Return(),
	}
}

// described gives the first instruction of a function its name and type: int (struct xdp_md *). Only functions whose
// type is known can be replaced.
func described(first asm.Instruction, name string) asm.Instruction {
	packet := &btf.Pointer{Target: &btf.Struct{Name: "xdp_md", Size: 24}}
	return btf.WithFuncMetadata(first.WithSymbol(name), &btf.Func{
		Name: name, Linkage: btf.GlobalFunc,
		Type: &btf.FuncProto{
			Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed},
			Params: []btf.FuncParam{{Name: "ctx", Type: packet}},
		},
	})
}

// build makes a dispatcher with these programs in it. Its functions are such as do not change packets where all programs get by with that, as libxdp's
// were until programs that do were refused: so who looks at it sees what the tools that made the one before take.
func build(members []*member) (*built, error) {
	f := newFormat(members)
	b, err := fill(f, members, false)
	if !errors.Is(err, unix.EINVAL) {
		return b, err
	}
	if b, again := fill(f, members, true); again == nil {
		return b, nil
	}
	return nil, err
}
