package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
)

// extend makes the prepared program one that a dispatcher calls. Whether that gets packets of several buffers is the dispatcher's
// matter, and not the program's.
func extend(spec *ebpf.CollectionSpec) error {
	program := spec.Programs[onlyProgram]
	program.Type, program.AttachType = ebpf.Extension, ebpf.AttachNone
	program.Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	if err := spec.Variables[captureVarDispatched].Set(uint8(1)); err != nil {
		return fmt.Errorf("set that the program is in a dispatcher: %w", err)
	}
	return nil
}

// loadExtension loads the program for the dispatcher that is on the interface, so that the kernel says what such a dispatcher takes. One
// whose functions change no packets takes no program that writes timestamps in front of them, so then it is one that does not.
func (c *Config) loadExtension(spec *ebpf.CollectionSpec, s *Selection, shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	target, err := c.Dispatcher.Target()
	if err != nil {
		return nil, fmt.Errorf("load XDP program: %w", err)
	}
	defer target.Close()
	program := spec.Programs[onlyProgram]
	program.AttachTarget, program.AttachTo = target, dispatcher.Function
	stamps := c.Timestamps && !c.unstamped
	if !stamps {
		program.Instructions = unstamped(program.Instructions)
	}
	collection, err := load(spec, s, shared)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("%w: %w (with CAP_PERFMON, too, it is the kernel that loads no extension programs: some are locked down against them)", ErrNoExtensions, err)
	}
	if !errors.Is(err, ErrRefused) || !stamps {
		return collection, err
	}
	program.Instructions = unstamped(program.Instructions)
	collection, again := load(spec, s, shared)
	if again != nil {
		return nil, err
	}
	c.unstamped = true
	return collection, nil
}

// unstamped has the program find no room for timestamps, without asking.
func unstamped(program asm.Instructions) asm.Instructions {
	for i := range program {
		if ins := &program[i]; ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnXdpAdjustMeta {
			*ins = asm.Mov.Imm(asm.R0, -1).WithMetadata(ins.Metadata)
		}
	}
	return program
}

// join puts the program into the dispatcher.
func (p *Program) join(ifindex int, mode Mode) error {
	c := &p.config
	has := Driver
	if c.Dispatcher.Generic() {
		has = Generic
	}
	if mode != Any && mode != has {
		return fmt.Errorf("attach to interface %d in %s mode: %w: %s", ifindex, mode, ErrOtherMode, has)
	}
	seat, err := c.Dispatcher.Join(p.program, dispatcher.Settings{
		Priority: c.Priority, Actions: dispatcher.DefaultActions, Fragments: c.MultiBuffer,
	})
	if errors.Is(err, dispatcher.ErrRefused) {
		err = fmt.Errorf("%w: %w (lower the MTU; or take out the programs of the dispatcher that take no packets of several buffers, as with xdp-loader unload)", ErrDriverRefused, err)
	}
	if err != nil {
		return fmt.Errorf("attach to interface %d in %s mode: %w", ifindex, has, err)
	}
	p.link, p.mode = seat, has
	return nil
}

// InDispatcher reports whether the program was loaded to join a dispatcher.
func (p *Program) InDispatcher() bool { return p.config.Dispatcher != nil }

// Unstamped reports whether timestamps were asked for that the program cannot write, since the dispatcher takes none
// that does.
func (p *Program) Unstamped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.Timestamps && p.config.unstamped
}

// Dispatched is the program on the interface, a dispatcher, if this one is in it: others may exchange it. 0 says that it is in none,
// or not there any more. Errors are those of package dispatcher.
func (p *Program) Dispatched() (id uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seat, ok := p.link.(*dispatcher.Slot)
	if !ok {
		return 0, nil
	}
	return seat.Here()
}
