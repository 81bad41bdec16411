package bpf

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Object is an XDP program of the user's own, in an ELF object, which decides about packets. It is
// linked into the program of this package as a function. An Object does not change after it is
// read, and any goroutine may use it.
type Object struct {
	file, program string
	elf           []byte
	fragments     bool
}

// ErrObject means that an ELF object cannot be used as a filter. The error's text has the reason.
var ErrObject = errors.New("object cannot be a filter")

// ReadObject reads an ELF object and checks that its program of that name can be a filter. Whether the
// verifier accepts it, Load reports. Errors match [ErrObject], or are those of reading the file.
func ReadObject(file, program string) (*Object, error) {
	elf, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the filter's object: %w", err)
	}
	o := &Object{file: file, program: program, elf: elf}
	_, p, err := o.read()
	if err != nil {
		return nil, err
	}
	o.fragments = p.Flags&unix.BPF_F_XDP_HAS_FRAGS != 0
	return o, nil
}

// Fragments reports whether the program accepts packets that fill several buffers, that is, whether
// it is in section xdp.frags.
func (o *Object) Fragments() bool { return o.fragments }

// String names the program and its file.
func (o *Object) String() string { return fmt.Sprintf("program %s of %s", o.program, o.file) }

// Digest is a hash of the object's bytes.
func (o *Object) Digest() string { return fmt.Sprintf("%x", sha256.Sum256(o.elf)) }

func (o *Object) wrong(format string, a ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrObject, o, fmt.Sprintf(format, a...))
}

// read reads the object again, for a caller that changes it, and checks it.
func (o *Object) read() (*ebpf.CollectionSpec, *ebpf.ProgramSpec, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(o.elf))
	if err != nil {
		return nil, nil, o.wrong("it is no object that can be read: %v (compile it with: clang -O2 -g -target bpf -c)", err)
	}
	p := spec.Programs[o.program]
	if p == nil {
		return nil, nil, o.wrong("there is no such program (there is: %s)", strings.Join(programs(spec), ", "))
	}
	if err := errors.Join(o.checkProgram(p), o.checkMaps(spec)); err != nil {
		return nil, nil, err
	}
	return spec, p, nil
}

// programs returns the names of the programs in an object, in order.
func programs(spec *ebpf.CollectionSpec) (names []string) {
	for name := range spec.Programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// compatible are the licences that the kernel takes for the GPL (include/linux/license.h).
var compatible = []string{"GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"}

func (o *Object) checkProgram(p *ebpf.ProgramSpec) error {
	switch {
	case p.Type != ebpf.XDP || p.AttachType != ebpf.AttachXDP && p.AttachType != ebpf.AttachNone:
		return o.wrong("it is in section %q: put it into \"xdp.frags\", or \"xdp\" if it cannot take packets of several buffers", p.SectionName)
	case !slices.Contains(compatible, p.License):
		return o.wrong("its licence is %q: it becomes one program with ours, which needs one of: %s", p.License, strings.Join(compatible, ", "))
	}
	for i := range p.Instructions {
		ins := &p.Instructions[i]
		if why := forbidden[asm.BuiltinFunc(ins.Constant)]; ins.IsBuiltinCall() && why != "" {
			return o.wrong("it calls %v, %s", asm.BuiltinFunc(ins.Constant), why)
		}
		if ins.Symbol() != "" && btf.FuncMetadata(ins) == nil {
			return o.wrong("function %s has no type information: compile it with -g", ins.Symbol())
		}
	}
	return nil
}

const (
	decidesOnly = "and a filter only returns the action: return XDP_REDIRECT, XDP_PASS or XDP_DROP"
	changes     = "and a filter leaves the packet as it is"
)

// forbidden are the helpers that a filter must not call, each with the reason.
var forbidden = map[asm.BuiltinFunc]string{
	asm.FnRedirect: decidesOnly, asm.FnRedirectMap: decidesOnly, asm.FnTailCall: decidesOnly,
	asm.FnXdpAdjustHead: changes, asm.FnXdpAdjustMeta: changes, asm.FnXdpAdjustTail: changes, asm.FnXdpStoreBytes: changes,
}

// mapTypes are the map types that an object may use.
var mapTypes = []ebpf.MapType{ebpf.Array, ebpf.PerCPUArray, ebpf.Hash, ebpf.PerCPUHash, ebpf.LRUHash, ebpf.LRUCPUHash, ebpf.LPMTrie}

func (o *Object) checkMaps(spec *ebpf.CollectionSpec) error {
	for name, m := range spec.Maps {
		switch {
		case name == ".kconfig":
			return o.wrong("it asks for the kernel's configuration (__kconfig), which a filter is not told")
		case !slices.Contains(mapTypes, m.Type):
			return o.wrong("its map %s is a %v: a filter may have arrays, hashes (also per CPU, also LRU) and LPM tries", name, m.Type)
		case m.Pinning != ebpf.PinNone:
			return o.wrong("its map %s is to be pinned: a filter's maps are there as long as it is", name)
		}
	}
	if m := spec.Maps[ownCounters]; m != nil {
		return o.checkCounters(m)
	}
	return nil
}

// ownPrefix is put before the names of the user's functions and maps in a program.
const ownPrefix = "own_"

// join links the user's program into ours. Its functions and maps are added under new names, and
// unifiedd_own calls it.
func (o *Object) join(spec *ebpf.CollectionSpec, fragments bool) error {
	if fragments && !o.fragments {
		return o.wrong("packets may fill several buffers, as the interface was opened: put the program into section \"xdp.frags\"")
	}
	theirs, p, err := o.read()
	if err != nil {
		return err
	}
	if err := spec.Variables[captureVarOwnProgram].Set(uint8(1)); err != nil {
		return fmt.Errorf("set the user's program: %w", err)
	}
	ours := spec.Programs[onlyProgram]
	body := asm.Instructions{asm.Mov.Reg(asm.R1, asm.R1), call(ownPrefix + o.program), asm.Return()}
	if ours.Instructions, err = splice(ours.Instructions, ownSymbol, body); err != nil {
		return err
	}
	ours.Instructions = append(ours.Instructions, renamed(p.Instructions)...)
	for name, m := range theirs.Maps {
		spec.Maps[ownPrefix+name] = m
	}
	return nil
}

// renamed puts the prefix before the names of functions and maps, also where they are
// referred to.
func renamed(program asm.Instructions) asm.Instructions {
	for i := range program {
		ins := &program[i]
		if ins.Symbol() != "" {
			*ins = ins.WithSymbol(ownPrefix + ins.Symbol())
		}
		if ins.Reference() != "" && (ins.IsFunctionReference() || ins.IsLoadFromMap()) {
			*ins = ins.WithReference(ownPrefix + ins.Reference())
		}
	}
	return program
}
