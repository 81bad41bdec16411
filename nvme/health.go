package nvme

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// What can become of a target that was opened.
var (
	// ErrDeviceGone is matched when the disk it was opened on is there no more.
	ErrDeviceGone = errors.New("the disk is gone")
	// ErrReadOnlyFileSystem is matched when its file system takes no writes.
	ErrReadOnlyFileSystem = errors.New("the file system is read-only")
)

// readOnlyMount is ST_RDONLY, of statfs(2).
const readOnlyMount = 1

// Health says why an open target can take no writes any more, as far as the kernel
// knows: its disk is gone, is smaller, or is read-only by now. Nil says that nothing of
// that kind is known, not that the disk works. It does not wait for a disk, but may for
// the server of a file system on a network. It may be called from any goroutine.
//
// A write to a block device that is gone fails with ENOSPC: it has no bytes any more.
func (t *Target) Health() error {
	if t.block || t.node != nil {
		return t.deviceHealth(t.BlockFD())
	}
	return t.fileHealth()
}

// deviceHealth asks the block device, if there is one to ask.
func (t *Target) deviceHealth(fd int) error {
	if fd < 0 {
		return nil
	}
	size, err := deviceSize(fd)
	if err != nil || size == 0 {
		return fmt.Errorf("%w (attach it again)", ErrDeviceGone)
	}
	if size < t.size {
		return fmt.Errorf("%w: it had %d bytes and has %d", ErrDeviceTooSmall, t.size, size)
	}
	if ro, err := unix.IoctlGetInt(fd, unix.BLKROGET); err == nil && int32(ro) != 0 {
		return fmt.Errorf("%w by now (run: blockdev --setrw %s; a disk that protects itself is to be replaced)", ErrDeviceReadOnly, t.path)
	}
	return nil
}

// fileHealth asks for the device below the file, and the file system.
func (t *Target) fileHealth() error {
	var st unix.Stat_t
	if unix.Fstat(t.fd, &st) == nil && unix.Major(st.Dev) != 0 { // else it lies on no one device
		if _, err := os.Stat(sysDevice(st.Dev)); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w that its file system is on (attach it again and mount it)", ErrDeviceGone)
		}
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(t.fd, &fs) == nil && fs.Flags&readOnlyMount != 0 {
		return fmt.Errorf("%w (the kernel's log says why; check it, and mount it for writing again)", ErrReadOnlyFileSystem)
	}
	return nil
}
