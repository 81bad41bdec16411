package worker

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// eventfd wakes a worker that sleeps in poll.
type eventfd struct {
	fd   int
	once sync.Once
}

func newEventfd() (*eventfd, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create an eventfd: %w", err)
	}
	return &eventfd{fd: fd}, nil
}

// signal makes the descriptor readable. A full counter is readable already.
func (e *eventfd) signal() {
	one := [8]byte{1}
	_, _ = unix.Write(e.fd, one[:])
}

// clear makes it unreadable again.
func (e *eventfd) clear() {
	var b [8]byte
	_, _ = unix.Read(e.fd, b[:])
}

func (e *eventfd) Close() (err error) {
	e.once.Do(func() { err = unix.Close(e.fd) })
	return err
}
