package dispatcher

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cilium/ebpf"
)

// Settings are what a dispatcher keeps of each program.
type Settings struct {
	Priority  uint32 // programs with lower ones run first
	Actions   uint32 // after which the next program runs: bit N stands for the XDP action N
	Fragments bool   // it takes packets that fill several buffers
}

// What libxdp takes where nothing is said.
const (
	DefaultPriority = 50
	DefaultActions  = 1 << 2 // XDP_PASS
)

// member is a program in a dispatcher.
type member struct {
	Settings
	program   *ebpf.Program
	id        ebpf.ProgramID
	name, tag string
	own       bool // a slot holds its link, and no pin does
}

// newMember asks what order the program has among others; the program stays the caller's.
func newMember(p *ebpf.Program, s Settings) (*member, error) {
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	id, ok := info.ID()
	if !ok {
		return nil, errors.New("the kernel does not tell the program's id")
	}
	return &member{Settings: s, program: p, id: id, name: info.Name, tag: info.Tag}, nil
}

// inOrder sorts programs as libxdp does: by priority, then by name and tag.
func inOrder(members []*member) {
	slices.SortStableFunc(members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.name, b.name), cmp.Compare(a.tag, b.tag))
	})
}
