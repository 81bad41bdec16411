package mirror

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// slots is the most mirrors in one network namespace.
const slots = 64

// slot is a number that one mirror of a network namespace owns. The kernel keeps the socket's name
// per network namespace, and releases it with the process.
type slot struct {
	number int
	fd     int
}

// takeSlot takes the lowest free number.
func takeSlot() (*slot, error) {
	for n := range slots {
		s, err := claim(n)
		if s != nil || err != nil {
			return s, err
		}
	}
	return nil, fmt.Errorf("all %d numbers for mirrors are taken in this network namespace (see: ip link, ss -xa)", slots)
}

// claim takes a number; nil if it has an owner.
func claim(number int) (*slot, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@unifiedd/mirror/%d", number)})
	if err == nil {
		return &slot{number, fd}, nil
	}
	_ = unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, nil
	}
	return nil, fmt.Errorf("take mirror number %d: %w", number, err)
}

func (s *slot) close() error { return unix.Close(s.fd) }
