package network

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// event is an eventfd: readable after raise, until it is lowered.
type event struct {
	fd    int
	count [8]byte // as read by lower
}

var noEvent = event{fd: -1}

func newEvent() (event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return noEvent, fmt.Errorf("make an eventfd: %w", err)
	}
	return event{fd: fd}, nil
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// raise cannot go wrong: a counter that is full is readable.
func (e *event) raise() { _, _ = unix.Write(e.fd, one) }

// lower cannot go wrong either: a counter that is empty has nothing to lower. One thread at a time calls it.
func (e *event) lower() { _, _ = unix.Read(e.fd, e.count[:]) }

// close may be called again.
func (e *event) close() error {
	if e.fd < 0 {
		return nil
	}
	err := unix.Close(e.fd)
	e.fd = -1
	if err != nil {
		return fmt.Errorf("close the eventfd: %w", err)
	}
	return nil
}
