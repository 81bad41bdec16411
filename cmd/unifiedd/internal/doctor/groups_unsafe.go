package doctor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setGroups calls setgroups(2) for this thread only. The function of package syscall changes all
// threads.
func setGroups(n int, first *uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(n), uintptr(unsafe.Pointer(first)), 0); errno != 0 {
		return errno
	}
	return nil
}
