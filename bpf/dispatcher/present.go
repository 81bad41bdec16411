package dispatcher

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
)

// present is the dispatcher that is on an interface, with its programs.
type present struct {
	on      attached
	program *ebpf.Program
	members []*member
}

// read reads the dispatcher on the interface; nil if there is no program. The caller closes it. Errors match
// errChanged, those of open, and ErrNoPins.
func (i *Interface) read(f *files) (_ *present, err error) {
	on, err := i.look()
	if err != nil || on.id == 0 {
		return nil, err
	}
	d := &present{on: on}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	var known *format
	if d.program, known, err = open(on.id); err != nil {
		return nil, changed(err)
	}
	for n := range int(known.Programs) {
		m, err := f.member(i.index, on.id, n, known.settings(n))
		if err == nil {
			d.members = append(d.members, m)
			continue
		}
		if now, e := i.look(); e == nil && now.id != on.id {
			return nil, errChanged
		}
		return nil, fmt.Errorf("%w: %w (were they pinned in another mount namespace, or with another %s? Unload them, and load them again)", ErrNoPins, err, rootVariable)
	}
	return d, nil
}

// changed returns errChanged in place of an error that says that a program no longer exists.
func changed(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errChanged
	}
	return err
}

// member opens a pinned program.
func (f *files) member(ifindex int, dispatcher ebpf.ProgramID, n int, s Settings) (*member, error) {
	path := filepath.Join(f.pins(ifindex, dispatcher), functionName(n)+"-prog")
	p, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return nil, fileError("open "+path, err)
	}
	m, err := newMember(p, s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at %s: %w", path, err), p.Close())
	}
	return m, nil
}

// close closes the descriptors.
func (d *present) close() error {
	if d == nil {
		return nil
	}
	errs := []error{d.program.Close()}
	for _, m := range d.members {
		errs = append(errs, m.program.Close())
	}
	return errors.Join(errs...)
}

// has reports whether the program is in it.
func (d *present) has(id ebpf.ProgramID) bool {
	if d == nil {
		return false
	}
	for _, m := range d.members {
		if m.id == id {
			return true
		}
	}
	return false
}

// Settings are a dispatcher's settings of one program.
type Settings struct {
	Priority  uint32 // programs with lower ones run first
	Actions   uint32 // after which the next program runs: bit N stands for the XDP action N
	Fragments bool   // it takes packets that fill several buffers
}

// The defaults of libxdp.
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

// newMember finds the program's place in the order of programs. The caller still owns the program.
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

// Probe tries whether the kernel lets this process load an extension, that is, a program that a dispatcher
// calls. A locked-down kernel, or one without a BPF compiler, refuses it.
func Probe() error {
	d, err := load(newFormat([]*member{{}}), false)
	if err != nil {
		return err
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "probe", Type: ebpf.Extension, AttachTarget: d, AttachTo: Function, License: "Dual BSD/GPL", Instructions: function("probe", false),
	})
	if err != nil {
		err = fmt.Errorf("load an extension program: %w", err)
	}
	return errors.Join(err, p.Close(), d.Close())
}
