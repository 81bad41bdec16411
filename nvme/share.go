package nvme

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrSharedOtherwise is matched if the file or device is open with another TargetConfig.Share.
var ErrSharedOtherwise = errors.New("the disk is shared as something else")

// Locks of shared targets are of the bytes from shareFrom on, which no file has, and which programs for disk images do
// not lock.
const (
	shareFrom = 1 << 62
	shareMask = 1<<61 - 1
)

// share takes a read lock of the byte with the target's number, and refuses the target if somebody has one of
// another byte. The locks belong to the open file. So they last until the target is closed and no queue has it,
// which is after the last operation, also if the process was killed.
func (t *Target) share(number uint64) error {
	if number == 0 {
		return nil
	}
	fd := t.fd
	if t.node != nil && t.node.claim >= 0 {
		fd = t.node.claim // locks belong to the file of a device: the node's are not those of the block device
	}
	at := shareFrom + int64(number&shareMask)
	mine := unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: 1}
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &mine)
	for _, others := range []unix.Flock_t{{Start: shareFrom, Len: at - shareFrom}, {Start: at + 1, Len: shareFrom + shareMask - at}} {
		if others.Type = unix.F_WRLCK; err == nil && others.Len > 0 {
			err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &others)
		}
		if err == nil && others.Len > 0 && others.Type != unix.F_UNLCK {
			return ErrSharedOtherwise
		}
	}
	switch {
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		return nil // a file system without locks
	case err != nil:
		return fmt.Errorf("lock it: %w", err)
	}
	return nil
}
