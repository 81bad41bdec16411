package nvme

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// deviceSize is a block device's size in bytes (BLKGETSIZE64). The kernel
// writes to size during the call only.
func deviceSize(fd int) (uint64, error) {
	var size uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, errno
	}
	return size, nil
}
