package labenv

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl makes a request whose argument is a struct in b. The kernel reads and writes b only during
// the call. The struct contains its own length.
func ioctl(f *os.File, request uintptr, b []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	if errno != 0 {
		return errno
	}
	return nil
}
