package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollOrNap waits until one of the set can be read or the time is over, without
// telling the Go scheduler: handing its processor over and getting it back
// costs as much as a packet, and there are two processors more than workers. An
// interrupted wait is a shorter one. The set and the time may lie on the stack of the
// caller, which does not move during a raw call.
func pollOrNap(set []unix.PollFd, ts *unix.Timespec) {
	unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(set))), uintptr(len(set)), uintptr(unsafe.Pointer(ts)), 0, 0, 0)
}
