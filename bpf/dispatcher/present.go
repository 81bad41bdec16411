package dispatcher

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// present is the dispatcher that is on an interface, with its programs.
type present struct {
	on      attached
	program *ebpf.Program
	members []*member
}

// read reads the dispatcher on the interface; nil: there is no program. The caller closes it. Errors match errChanged, those of
// open, and ErrNoPins.
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

// changed is errChanged for a program that is gone.
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
