package hugetlb

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockPath is the file whose lock keeps other processes from changing a reservation. Only root can
// open it. Otherwise any user could keep every daemon from starting. A file in sysfs is unsuitable,
// since each network namespace has its own sysfs.
const lockPath = "/run/unifiedd-hugepages.lock"

// Lock waits for the lock of the machine, and returns a function that releases it. A process that
// holds it must not call Lock again.
func Lock() (unlock func(), err error) {
	f, err := os.OpenFile(lockPath, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the huge pages: %w", err)
	}
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) { // Go's own preemption is a signal, too
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", lockPath, err)
	}
	return func() { f.Close() }, nil
}
