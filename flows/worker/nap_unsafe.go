package worker

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// nap sleeps without telling the Go scheduler. An interrupted nap is a shorter
// one. ts lives on the caller's stack, which does not move during a raw call.
func rawSleep(ts *unix.Timespec) {
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(ts)), 0, 0, 0)
}
