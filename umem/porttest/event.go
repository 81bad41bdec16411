package porttest

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// event is a descriptor that polls readable while it is set.
type event struct {
	fd    int
	isSet bool
	word  [8]byte // the eventfd's count, written and read
}

func (v *event) open() (err error) {
	if v.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("create an eventfd: %w", err)
	}
	return nil
}

// set makes a system call only if the state changes.
func (v *event) set(on bool) {
	if v.fd < 0 || on == v.isSet {
		return
	}
	v.isSet = on
	v.word = [8]byte{1}
	for again := true; again; {
		var err error
		if on {
			_, err = unix.Write(v.fd, v.word[:])
		} else {
			_, err = unix.Read(v.fd, v.word[:])
		}
		again = errors.Is(err, unix.EINTR)
	}
}

func (v *event) close() error {
	fd := v.fd
	v.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("close an eventfd: %w", err)
	}
	return nil
}
