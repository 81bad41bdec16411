//go:build amd64

package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollLong waits for as long as a worker may, by poll(2): of the two calls, the
// one that does not write back how much time was left.
func pollLong(set []unix.PollFd) bool {
	syscall.RawSyscall(unix.SYS_POLL, uintptr(unsafe.Pointer(unsafe.SliceData(set))), uintptr(len(set)), uintptr(longest.Milliseconds()))
	return true
}
