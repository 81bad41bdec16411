package dispatcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

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

// close closes the descriptors. What is pinned stays.
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

// pinLink pins a link; for that of a program of ours, which is to go with the process, the program stands: libxdp's tools remove the pin of each
// link before that of its program, and stop at one that is not there, but do not look at it.
func (b *built) pinLink(n int, path string) error {
	if m := b.members[n]; m.own {
		return pinProgram(m.program, path)
	}
	return b.links[n].Pin(path)
}

// take gives the link of the program that is ours, if there is one, to the caller.
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
