package dispatcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// tries is how often an operation starts again after other processes exchanged the dispatcher
// during it.
const tries = 10

// Function is a function of every dispatcher that has programs. A program is loaded as a replacement of this
// function, and can then replace every other one.
const Function = "prog0"

// Slot is the place of a program in the dispatcher of an interface.
type Slot struct {
	on       *Interface
	settings Settings
	id       ebpf.ProgramID // of the program
	mark     *mark          // of it; nil: it was taken out
	place
}

// place is where a program is.
type place struct {
	in   ebpf.ProgramID // the dispatcher, when it was last looked for
	link link.Link      // to its function; nil: others hold it by a pin
}

// close detaches the program from the function.
func (p *place) close() error {
	if p.link == nil {
		return nil
	}
	err := p.link.Close()
	p.link = nil
	return err
}

// Target returns the dispatcher on the interface. The caller loads its program as an extension of the
// dispatcher's [Function]. The caller closes it.
func (i *Interface) Target() (*ebpf.Program, error) {
	for range tries {
		on, err := i.look()
		if err != nil {
			return nil, err
		}
		if on.id == 0 {
			return nil, i.about(errGone)
		}
		p, _, err := open(on.id)
		if !errors.Is(changed(err), errChanged) {
			return p, i.about(err)
		}
	}
	return nil, i.about(ErrBusy)
}

// Join puts a program into the dispatcher until the caller closes the Slot. The caller still owns the program
// and the Interface, and keeps the Interface open as long as the slot. Errors match those of this package, or
// wrap the kernel's if the driver refuses the dispatcher.
func (i *Interface) Join(p *ebpf.Program, s Settings) (*Slot, error) {
	seat := &Slot{on: i, settings: s}
	if err := seat.exchange(p); err != nil {
		return nil, i.about(err)
	}
	return seat, nil
}

// Update exchanges the program for another. On error the old one stays.
func (s *Slot) Update(p *ebpf.Program) error { return s.on.about(s.exchange(p)) }

// Close takes the program out of the dispatcher, if it is still there. If the dispatcher is then empty, Close
// removes it from the interface. After an error the program counts as dead, and a second call does nothing.
func (s *Slot) Close() error {
	if s.mark == nil {
		return nil
	}
	err := errors.Join(locked(s.leave), s.mark.abandon(), s.place.close())
	s.mark = nil
	return s.on.about(err)
}

// leave takes the program out, and removes its mark.
func (s *Slot) leave(f *files) error {
	_, err := s.on.exchange(f, s.id, nil)
	switch {
	case errors.Is(err, unix.ENODEV): // with the interface the dispatcher went, and left its pins
		err = os.RemoveAll(f.pins(s.on.index, s.in))
	case errors.Is(err, errGone), errors.Is(err, ErrOther):
		err = nil
	}
	if err != nil {
		return err
	}
	return os.Remove(s.mark.path)
}

// Here is the id of the dispatcher on the interface if it has the slot's program; otherwise 0.
func (s *Slot) Here() (id uint32, err error) {
	err = locked(func(f *files) error {
		d, err := s.on.read(f)
		if err != nil {
			return err
		}
		if d.has(s.id) {
			id = uint32(d.on.id)
		}
		if d != nil && d.on.id != s.in { // nothing runs in the earlier one
			err = s.place.close()
			s.place = place{d.on.id, s.takeOverLink(f, d)}
		}
		return errors.Join(err, d.close())
	})
	if errors.Is(err, ErrOther) {
		err = nil
	}
	return id, s.on.about(err)
}

// takeOverLink takes over the link with which another process attached the program to its dispatcher, so that
// the link ends with this process. It returns nil if that fails.
func (s *Slot) takeOverLink(f *files, d *present) link.Link {
	n := slices.IndexFunc(d.members, func(m *member) bool { return m.id == s.id })
	if n < 0 {
		return nil
	}
	path := filepath.Join(f.pins(s.on.index, d.on.id), functionName(n)+"-link")
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil
	}
	if err := os.Remove(path); err != nil {
		_ = l.Close()
		return nil
	}
	_ = pinProgram(d.members[n].program, path) // for libxdp's tools, see pinLink
	return l
}

// exchange replaces the slot's program, or adds p if there is none.
func (s *Slot) exchange(p *ebpf.Program) error {
	in, err := newMember(p, s.settings)
	if err != nil {
		return fmt.Errorf("look at the program: %w", err)
	}
	in.own = true
	return locked(func(f *files) error {
		f.removeStale()
		fresh, err := f.mark(in.id)
		if err != nil {
			return err
		}
		next, err := s.on.exchange(f, s.id, in)
		if err != nil {
			return errors.Join(err, fresh.close())
		}
		// The old program is out of the dispatcher. If its mark stays, the closed mark says that
		// the program is dead.
		_, _ = s.mark.close(), s.place.close()
		s.mark, s.id, s.place = fresh, in.id, next
		return nil
	})
}

// locked runs f with libxdp's directory locked. It runs f again if another process exchanged the dispatcher
// during the call.
func locked(f func(*files) error) error {
	dir, err := openFiles()
	if err != nil {
		return err
	}
	defer dir.close()
	for pause := time.Millisecond; ; pause *= 2 {
		if err = f(dir); !errors.Is(err, errChanged) {
			return err
		}
		if pause > time.Millisecond<<tries {
			return ErrBusy
		}
		time.Sleep(pause)
	}
}

// exchange builds a dispatcher without one program and with another; either may be missing. It
// leaves out the programs of dead processes. It puts the dispatcher on the interface and returns
// the place of the new program.
func (i *Interface) exchange(f *files, out ebpf.ProgramID, in *member) (at place, err error) {
	old, err := i.read(f)
	if err != nil {
		return at, err
	}
	defer func() { _ = old.close() }()
	if old == nil || out != 0 && !old.has(out) {
		return at, errGone
	}
	members, dead := f.living(old.members, out)
	if in != nil {
		members = append(members, in)
	}
	if len(members) > Most {
		return at, fmt.Errorf("%w: it has %d programs already (see which: xdp-loader status; unload one: xdp-loader unload %s --id ID)", ErrFull, Most, i.name)
	}
	if at, err = i.put(f, old, members); err != nil {
		return at, err
	}
	// The exchange is complete here. A packet that is still in the old dispatcher runs through all of its
	// programs. Files that cannot be removed do no harm; xdp-loader clean removes them.
	barrier()
	_ = os.RemoveAll(f.pins(i.index, old.on.id))
	for _, m := range dead {
		_ = os.Remove(f.markPath(m.id))
	}
	return at, nil
}

// barrier waits until every processor has left the XDP program that it was running (MEMBARRIER_CMD_GLOBAL is
// synchronize_rcu). On a kernel without it, a few packets may bypass the programs of a dispatcher that was
// just exchanged.
func barrier() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of include/uapi/linux/membarrier.h
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}

// living sorts the programs, apart from out, into those that stay and those whose processes have
// ended.
func (f *files) living(members []*member, out ebpf.ProgramID) (stay, dead []*member) {
	for _, m := range members {
		switch {
		case m.id == out:
		case f.dead(m.id):
			dead = append(dead, m)
		default:
			stay = append(stay, m)
		}
	}
	return stay, dead
}

// put replaces the old dispatcher by one with these programs, or removes it if there are none.
func (i *Interface) put(f *files, old *present, members []*member) (at place, err error) {
	if len(members) == 0 {
		return at, i.replace(old, nil)
	}
	inOrder(members)
	b, err := build(members)
	if err != nil {
		return at, err
	}
	defer func() { _ = b.close() }() // closes only descriptors, and the kernel closes them even on error
	if err := f.pin(i.index, b); err != nil {
		return at, err
	}
	if err := i.replace(old, b.program); err != nil {
		return at, errors.Join(err, os.RemoveAll(f.pins(i.index, b.id)))
	}
	return place{b.id, b.take()}, nil
}
