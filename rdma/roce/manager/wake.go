package manager

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// wake is a descriptor that ends a poll: eventfd(2).
type wake struct{ fd int }

func newWake() (wake, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return wake{-1}, fmt.Errorf("make an event descriptor: %w", err)
	}
	return wake{fd}, nil
}

// signal fails only when it is signalled already.
func (w wake) signal() { _, _ = unix.Write(w.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (w wake) take() { _, _ = unix.Read(w.fd, make([]byte, 8)) }

func (w wake) close() error { return unix.Close(w.fd) }
