package dispatcher

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// bench is an interface on which libxdp's tools are used.
type bench struct {
	*testing.T
	*testenv.Libxdp
}

// newBench makes the interface.
func newBench(t *testing.T) *bench {
	t.Helper()
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	return &bench{t, testenv.NewLibxdp(t, &pair.B)}
}

// plain is an ordinary XDP program, not one for a dispatcher.
func (b *bench) plain(name string) *ebpf.Program {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	testenv.Must(b, err)
	b.Cleanup(func() { p.Close() })
	return p
}

// forge puts a dispatcher on the interface, and pins programs as if they were in it. So a test can run on a
// kernel that loads no extensions.
func (b *bench) forge(programs ...*ebpf.Program) (id ebpf.ProgramID) {
	b.Helper()
	var members []*member
	for _, p := range programs {
		m, err := newMember(p, ordinary)
		testenv.Must(b, err)
		members = append(members, m)
	}
	d, err := load(newFormat(members), false)
	testenv.Must(b, err)
	defer d.Close()
	m, err := newMember(d, ordinary)
	testenv.Must(b, err)
	f, err := openFiles()
	testenv.Must(b, err)
	defer f.close()
	dir := f.pins(b.End.Index, m.id)
	testenv.Must(b, os.Mkdir(dir, 0o700))
	for n, p := range programs {
		testenv.Must(b, pinProgram(p, filepath.Join(dir, functionName(n)+"-prog")))
	}
	b.attach(d)
	return m.id
}

// on is the id of the program on the interface.
func (b *bench) on() (id uint32) {
	b.Helper()
	b.End.Do(b, func() {
		l, err := netlink.LinkByIndex(b.End.Index)
		testenv.Must(b, err)
		id = l.Attrs().Xdp.ProgId
	})
	return id
}

var ordinary = Settings{Priority: DefaultPriority, Actions: DefaultActions, Fragments: true}

// find looks for the dispatcher on the interface.
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

// attach puts a program on the interface without a dispatcher.
func (b *bench) attach(p *ebpf.Program) {
	b.Helper()
	b.End.Do(b, func() {
		l, err := netlink.LinkByIndex(b.End.Index)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(l, p.FD(), 0)
		}
		testenv.Must(b, err)
	})
}
