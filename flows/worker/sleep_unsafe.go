package worker

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawPoll waits until a descriptor of the set is ready, which must have one, and returns how many are. It does so without
// notice to the Go scheduler. A signal may end the wait early. ts is on the caller's stack, which does not move during a raw
// system call.
func rawPoll(set []unix.PollFd, ts *unix.Timespec) (ready int, errno unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(set))), uintptr(len(set)), uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	return int(n), errno
}

// rawSleep sleeps without notice to the Go scheduler. A signal may end the sleep early. ts is on
// the caller's stack, which does not move during a raw system call.
func rawSleep(ts *unix.Timespec) {
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(ts)), 0, 0, 0)
}
