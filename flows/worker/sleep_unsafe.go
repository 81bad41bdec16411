package worker

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawSleep sleeps without notice to the Go scheduler. A signal may end the sleep early. ts is on
// the caller's stack, which does not move during a raw system call.
func rawSleep(ts *unix.Timespec) {
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(ts)), 0, 0, 0)
}
