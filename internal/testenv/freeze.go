package testenv

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// FIFREEZE and FITHAW of include/uapi/linux/fs.h.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// Freeze freezes the file system of a directory: writes to it wait, uninterruptibly, until thaw.
// The caller must call thaw before the end of the test. Any goroutine may call Freeze and thaw.
func Freeze(dir string) (thaw func() error, err error) {
	if err := control(dir, fiFreeze); err != nil {
		return nil, fmt.Errorf("freeze %s: %w", dir, err)
	}
	return func() error {
		if err := control(dir, fiThaw); err != nil {
			return fmt.Errorf("thaw %s: %w", dir, err)
		}
		return nil
	}, nil
}

func control(dir string, request uint) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(f.Fd()), request, 0), f.Close())
}
