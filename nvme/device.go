package nvme

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Why a block device is refused. The error names what was found and where.
var (
	// ErrDeviceInUse is matched when the device is mounted, swapped to, or part of
	// another device.
	ErrDeviceInUse = errors.New("the device is in use")
	// ErrDeviceNotEmpty is matched when the device has partitions, a file system or
	// the like on it.
	ErrDeviceNotEmpty = errors.New("the device is not empty")
	// ErrDeviceReadOnly is matched when the device takes no writes.
	ErrDeviceReadOnly = errors.New("the device is read-only")
	// ErrDeviceTooSmall is matched when the device is smaller than asked for.
	ErrDeviceTooSmall = errors.New("the device is too small")
)

// openDevice opens a block device. To be written to it must be free, empty and
// held by nobody else while it is open; Force overrides all three, Filled that it is empty.
func (t *Target) openDevice(c TargetConfig) error {
	if err := t.claim(c); err != nil {
		return err
	}
	t.direct = true
	var st unix.Stat_t
	if err := unix.Fstat(t.fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || uint64(st.Rdev) != t.number {
		return fmt.Errorf("the path changed while it was opened: try again")
	}
	if err := t.measure(c); err != nil {
		return err
	}
	if err := t.findAlignment(c.Buffered); err != nil {
		return err
	}
	if err := t.findLimits(); err != nil {
		return err
	}
	if c.Force || c.Filled || c.ReadOnly {
		return nil
	}
	return t.checkEmpty()
}

// claim opens the device exclusively (O_EXCL on a block device: nobody else
// mounts or claims it meanwhile), or for reading only without.
func (t *Target) claim(c TargetConfig) (err error) {
	if c.ReadOnly {
		t.fd, err = openRetry(c.Path, unix.O_RDONLY|unix.O_DIRECT)
		return err
	}
	if !c.Force {
		if err := checkFree(t.number, c.Filled); err != nil {
			return err
		}
	}
	t.fd, err = openRetry(c.Path, unix.O_RDWR|unix.O_DIRECT|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) && c.Force {
		t.fd, err = openRetry(c.Path, unix.O_RDWR|unix.O_DIRECT)
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: another program has claimed it (stop that, or force)", ErrDeviceInUse)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES) && readOnlyDevice(t.number):
		return fmt.Errorf("%w (run: blockdev --setrw %s)", ErrDeviceReadOnly, c.Path)
	case errors.Is(err, unix.ENXIO):
		return fmt.Errorf("there is no device behind it: %w", err)
	}
	return err
}

// measure asks for the device's size and whether it takes writes.
func (t *Target) measure(c TargetConfig) error {
	size, err := deviceSize(t.fd)
	if err != nil {
		return fmt.Errorf("ask for the size of the device: %w", err)
	}
	t.size = size
	if size == 0 || size < c.Size {
		return fmt.Errorf("%w: it has %d bytes, %d are needed", ErrDeviceTooSmall, size, max(c.Size, 1))
	}
	if readOnlyDevice(t.number) && !c.ReadOnly {
		return fmt.Errorf("%w (run: blockdev --setrw %s)", ErrDeviceReadOnly, c.Path)
	}
	return nil
}

// readOnlyDevice reads the device's ro attribute
// (Documentation/ABI/stable/sysfs-block).
func readOnlyDevice(number uint64) bool {
	return readLine(filepath.Join(sysDevice(number), "ro")) == "1"
}

// checkEmpty refuses a device with something on it.
func (t *Target) checkEmpty() error {
	found, err := signatures(t.path, t.size)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%w: it has %s, which writing would destroy (clear it with: wipefs --all %s, or force)",
		ErrDeviceNotEmpty, strings.Join(found, ", "), t.path)
}
