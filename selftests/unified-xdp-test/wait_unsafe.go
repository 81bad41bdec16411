package main

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Both calls do not tell the Go scheduler: releasing its processor and reacquiring it costs as much
// as a packet, and there are two processors more than workers. An interrupted wait only ends
// earlier. Memory that the kernel reads and writes may be on the caller's stack, which does not
// move during a raw call.

// pollForever waits until one of the set can be read.
func pollForever(set []unix.PollFd) {
	syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(set))), uintptr(len(set)), 0, 0, 0, 0)
}

// pollOrNap waits until one of the set can be read, or until the time, below a second, has passed.
func pollOrNap(set []unix.PollFd, limit time.Duration) {
	ts := unix.Timespec{Nsec: int64(limit)}
	syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(set))), uintptr(len(set)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}
