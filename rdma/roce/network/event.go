package network

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// event is an eventfd: readable after raise, until it is lowered.
type event int

const noEvent event = -1

func newEvent() (event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return noEvent, fmt.Errorf("make an eventfd: %w", err)
	}
	return event(fd), nil
}

// raise and lower cannot go wrong: a counter that is full is readable, and one that is empty has nothing to lower.
func (e event) raise() { _, _ = unix.Write(int(e), []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (e event) lower() { _, _ = unix.Read(int(e), make([]byte, 8)) }

// close may be called again.
func (e *event) close() error {
	if *e == noEvent {
		return nil
	}
	err := unix.Close(int(*e))
	*e = noEvent
	if err != nil {
		return fmt.Errorf("close the eventfd: %w", err)
	}
	return nil
}
