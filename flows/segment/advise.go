package segment

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// failing are the reasons for which the kernel says that a disk did not do what it was
// asked to (blk_errors in block/blk-core.c).
var failing = []unix.Errno{unix.EIO, unix.ENODATA, unix.EREMOTEIO, unix.ETIMEDOUT, unix.ENOLINK, unix.ENODEV, unix.EILSEQ, unix.EBADE}

// advise adds to why a store cannot be opened what to do about it.
func (s *Manager) advise(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT) && s.to.Device != "":
		return fmt.Errorf("%w (attach the disk, or name another)", err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w (mount it for writing; if it was, the kernel's log says what happened)", err)
	case slices.ContainsFunc(failing, func(e unix.Errno) bool { return errors.Is(err, e) }):
		return fmt.Errorf("%w (the disk fails: the kernel's log says more)", err)
	}
	return err
}
