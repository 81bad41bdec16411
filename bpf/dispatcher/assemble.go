package dispatcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// functionName is the function of a dispatcher that a program replaces.
func functionName(n int) string { return fmt.Sprintf("prog%d", n) }

// load loads a dispatcher with this format into the kernel. With changes, its functions are ones that may
// change packets: since Linux 6.13 a program that changes packets (bpf_xdp_adjust_meta and the like) can
// replace no other function.
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

// instructions calls the functions one after the other. If the bit of a function's result is set in
// its actions, the next function runs. Otherwise that result is the result of the program. After
// the last function the result is XDP_PASS. The instructions read the map so that it belongs to the
// program.
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

// function makes a function that only returns.
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

// build makes a dispatcher with these programs. If no program changes packets, the dispatcher's
// functions do not either, as in older releases of libxdp: the tools that made the old dispatcher
// accept the new one.
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

// built is a dispatcher that was made here, with its programs in it.
type built struct {
	program *ebpf.Program
	id      ebpf.ProgramID
	members []*member // the caller's
	links   []link.Link
}

// fill loads a dispatcher and attaches the programs. Errors wrap the kernel's.
func fill(f *format, members []*member, changes bool) (_ *built, err error) {
	b := &built{members: members}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.program, err = load(f, changes); err != nil {
		return nil, err
	}
	info, err := b.program.Info()
	if err != nil {
		return nil, fmt.Errorf("ask for the dispatcher's id: %w", err)
	}
	b.id, _ = info.ID()
	for n, m := range members {
		l, err := link.AttachFreplace(b.program, functionName(n), m.program)
		if err != nil {
			return nil, fmt.Errorf("put program %d, %s, into the dispatcher: %w", m.id, m.name, err)
		}
		b.links = append(b.links, l)
	}
	return b, nil
}

// close closes the descriptors. Pins stay.
func (b *built) close() error {
	var errs []error
	for _, l := range b.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, b.program.Close())...)
}

// pins is the directory of a dispatcher's pins.
func (f *files) pins(ifindex int, id ebpf.ProgramID) string {
	return filepath.Join(f.dir, fmt.Sprintf("dispatch-%d-%d", ifindex, id))
}

// pin pins the programs and links of a dispatcher; on error nothing is.
func (f *files) pin(ifindex int, b *built) error {
	dir := f.pins(ifindex, b.id)
	err := os.Mkdir(dir, 0o700)
	if err != nil {
		return fileError("make "+dir, err)
	}
	for n, m := range b.members {
		at := filepath.Join(dir, functionName(n))
		if err := errors.Join(b.pinLink(n, at+"-link"), pinProgram(m.program, at+"-prog")); err != nil {
			return errors.Join(fileError("pin program in "+dir, err), os.RemoveAll(dir))
		}
	}
	return nil
}

// pinLink pins a link. The link of one of our programs must end with the process, so pinLink pins
// the program in its place. libxdp's tools remove the pin of a link before that of its program.
// They stop if the pin is missing, but do not check what it pins.
func (b *built) pinLink(n int, path string) error {
	if m := b.members[n]; m.own {
		return pinProgram(m.program, path)
	}
	return b.links[n].Pin(path)
}

// take transfers the link of our program, if there is one, to the caller.
func (b *built) take() link.Link {
	n := slices.IndexFunc(b.members, func(m *member) bool { return m.own })
	if n < 0 {
		return nil
	}
	l := b.links[n]
	b.links = slices.Delete(b.links, n, n+1)
	return l
}

// pinProgram pins a copy of the descriptor: pinning one again would move its pin.
func pinProgram(p *ebpf.Program, path string) error {
	c, err := p.Clone()
	if err != nil {
		return err
	}
	return errors.Join(c.Pin(path), c.Close())
}

// Most is how many programs fit into a dispatcher.
const Most = 10

const (
	programName = "xdp_dispatcher" // of every dispatcher
	magic       = 'X' + 'D' + 'P'
	version     = 2
	proceed     = 31 // result of a function that no program replaces: the next one runs
)

// format is the value of a dispatcher's map, struct xdp_dispatcher_config of libxdp. Each program has one
// element of each array.
type format struct {
	Magic, Version, Programs, Fragments uint8
	Actions, Priorities, Flags          [Most]uint32
}

func (f *format) bytes() ([]byte, error) { return binary.Append(nil, binary.NativeEndian, f) }

// settings returns the settings of program n.
func (f *format) settings(n int) Settings {
	return Settings{
		Priority: f.Priorities[n], Actions: f.Actions[n] &^ (1 << proceed),
		Fragments: f.Flags[n]&unix.BPF_F_XDP_HAS_FRAGS != 0,
	}
}

// newFormat describes a dispatcher with these programs. It takes packets of several
// buffers if all of them do.
func newFormat(members []*member) *format {
	f := &format{Magic: magic, Version: version, Programs: uint8(len(members)), Fragments: 1}
	for n, m := range members {
		f.Actions[n], f.Priorities[n] = m.Actions|1<<proceed, m.Priority
		if m.Fragments {
			f.Flags[n] = unix.BPF_F_XDP_HAS_FRAGS
		} else {
			f.Fragments = 0
		}
	}
	return f
}

// open returns the dispatcher with this id, and the value of its map. The caller closes it. Errors match
// ErrOther, ErrVersion, ErrPermission, or fs.ErrNotExist where there is no such program.
func open(id ebpf.ProgramID) (*ebpf.Program, *format, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("look at XDP program %d: %w: %w (%s)", id, ErrPermission, err, capabilities)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look at XDP program %d: %w", id, err)
	}
	f, err := formatOf(p)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("XDP program %d: %w", id, err), p.Close())
	}
	return p, f, nil
}

// formatOf reads a dispatcher's map.
func formatOf(p *ebpf.Program) (*format, error) {
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	maps, _ := info.MapIDs()
	if info.Name != programName || len(maps) != 1 {
		return nil, fmt.Errorf("%w: it is called %q", ErrOther, info.Name)
	}
	m, err := ebpf.NewMapFromID(maps[0])
	if err != nil {
		return nil, fmt.Errorf("open its map: %w", err)
	}
	defer m.Close()
	if m.Type() != ebpf.Array || m.KeySize() != 4 || m.ValueSize() < 4 || m.MaxEntries() != 1 || m.Flags()&unix.BPF_F_RDONLY_PROG == 0 {
		return nil, fmt.Errorf("%w: its map is another", ErrOther)
	}
	value, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, fmt.Errorf("read its map: %w", err)
	}
	return parse(value)
}

// remedy says what to do about a dispatcher that a program cannot join.
const remedy = "unload its programs, as with xdp-loader unload, and load them with a libxdp of protocol version 2"

// parse reads the value of a dispatcher's map. Before version 2 it had no magic number.
func parse(value []byte) (*format, error) {
	if value[0] != magic {
		return nil, fmt.Errorf("%w: before 2; this release knows 2 (%s)", ErrVersion, remedy)
	}
	if value[1] != version {
		return nil, fmt.Errorf("%w: %d; this release knows 2 (%s)", ErrVersion, value[1], remedy)
	}
	f := new(format)
	if n, err := binary.Decode(value, binary.NativeEndian, f); err != nil || n != len(value) || f.Programs > Most {
		return nil, fmt.Errorf("%w: its map is not that of version 2 (%s)", ErrVersion, remedy)
	}
	return f, nil
}

// Is reports whether a program is a dispatcher of any version, as far as the kernel tells.
func Is(id uint32) bool {
	p, _, err := open(ebpf.ProgramID(id))
	_ = p.Close()
	return err == nil || errors.Is(err, ErrVersion)
}
