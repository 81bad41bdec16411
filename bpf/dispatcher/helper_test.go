package dispatcher

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// bench is an interface with libxdp's tools at work.
type bench struct {
	*testing.T
	*testenv.Libxdp
}

// newBench makes the interface, with programs that libxdp's tools have loaded.
func newBench(t *testing.T, programs ...string) *bench {
	t.Helper()
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	b := &bench{t, testenv.NewLibxdp(t, &pair.B)}
	if len(programs) > 0 {
		b.Load(t, programs...)
	}
	return b
}

// find looks for the dispatcher.
func (b *bench) find() (i *Interface, err error) {
	b.Helper()
	b.End.Do(b, func() { i, err = Find(b.End.Index) })
	b.Cleanup(i.Close)
	return i, err
}

// mustFind finds the dispatcher.
func (b *bench) mustFind() *Interface {
	b.Helper()
	i, err := b.find()
	if err != nil || i == nil {
		b.Fatalf("found %v, %v", i, err)
	}
	return i
}

// program loads one that lets everything pass.
func (b *bench) program(i *Interface, name string) *ebpf.Program {
	b.Helper()
	target, err := i.Target()
	if err != nil {
		b.Fatal(err)
	}
	defer target.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.Extension, AttachTarget: target, AttachTo: Function, License: "GPL",
		Instructions: asm.Instructions{described(asm.Mov.Imm(asm.R0, 2), name), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}

var ordinary = Settings{Priority: DefaultPriority, Actions: DefaultActions, Fragments: true}

// join puts a program into the dispatcher until the end of the test.
func (b *bench) join(i *Interface, name string) *Seat {
	b.Helper()
	s, err := i.Join(b.program(i, name), ordinary)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// attach puts a program on the interface, as somebody would who knows no dispatcher.
func (b *bench) attach(p *ebpf.Program) {
	b.Helper()
	b.End.Do(b, func() {
		l, err := netlink.LinkByIndex(b.End.Index)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(l, p.FD(), 0)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}

// awaitGone waits until the kernel has freed a program.
func (b *bench) awaitGone(id ebpf.ProgramID) {
	b.Helper()
	testenv.Wait(b, 10*time.Second, "the program to go", func() bool {
		p, err := ebpf.NewProgramFromID(id)
		_ = p.Close()
		return err != nil
	})
}
