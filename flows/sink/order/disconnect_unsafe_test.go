package order

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// disconnect resets a connection, as connect(2) with AF_UNSPEC does. Its socket may connect elsewhere then.
func disconnect(fd int) error {
	to := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to)); errno != 0 {
		return errno
	}
	return nil
}
