package xdp

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
)

// Check looks whether the interface still is as it should be, for a control
// goroutine to call about once a second. Errors match ErrInterfaceGone,
// ErrInterfaceDown or ErrProgramGone. A new name is no error: Name gives it.
func (i *Interface) Check() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return fmt.Errorf("check %s: %w", i.Name(), ErrClosed)
	}
	i.company.mu.Lock() // no program is exchanged between what the device says and what is remembered
	defer i.company.mu.Unlock()
	s, err := i.device.look()
	if err != nil {
		return fmt.Errorf("check %s: %w", i.Name(), err)
	}
	if s.name != i.Name() {
		i.name.Store(&s.name)
	}
	// A card loses its link for a while when its program goes, which must not hide why.
	if err := i.checkProgram(s); err != nil {
		return err
	}
	switch {
	case !s.up:
		return fmt.Errorf("check %s: %w (ip link set %s up)", s.name, ErrInterfaceDown, s.name)
	case !s.carrier:
		return fmt.Errorf("check %s: %w: no carrier (look at the cable, or the other end)", s.name, ErrInterfaceDown)
	}
	return nil
}

func (i *Interface) checkProgram(s deviceState) error {
	if i.program == nil || s.program == i.company.programID {
		return nil
	}
	if s.program != 0 && i.program.InDispatcher() {
		return i.checkDispatcher(s)
	}
	return programGone(s)
}

// checkDispatcher looks whether the program is in the dispatcher that is there now: others exchange it when they add or remove theirs.
func (i *Interface) checkDispatcher(s deviceState) error {
	switch id, err := i.program.Dispatched(); {
	case errors.Is(err, dispatcher.ErrLocked), errors.Is(err, dispatcher.ErrBusy):
		return nil // they are at it: the next look says more
	case err != nil:
		return fmt.Errorf("check %s: %w: %w", s.name, ErrProgramGone, err)
	case id == 0:
		return programGone(s)
	default:
		i.company.programID = id
		return nil
	}
}

func programGone(s deviceState) error {
	by := "nothing is in its place"
	if s.program != 0 {
		by = fmt.Sprintf("program %d is in its place", s.program)
	}
	return fmt.Errorf("check %s: %w: %s (open the interface again)", s.name, ErrProgramGone, by)
}
