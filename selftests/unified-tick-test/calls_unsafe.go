package main

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls do not tell the Go scheduler: releasing its processor and reacquiring it costs as much as what they do.
// Only wait sleeps, and write to a UDP socket whose queue is full. Memory that the kernel reads and writes may be on the
// caller's stack, which does not move during a raw call.

// receive reads from a socket, and what the kernel says beside, such as stamps. It never waits: without anything, the
// error is EAGAIN.
func receive(fd int, b, beside []byte, flags int) (n, besides int, err syscall.Errno) {
	v := unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))}
	m := unix.Msghdr{Iov: &v, Iovlen: 1, Control: unsafe.SliceData(beside), Controllen: uint64(len(beside))}
	r, _, err := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), uintptr(flags|unix.MSG_DONTWAIT))
	runtime.KeepAlive(b)
	runtime.KeepAlive(beside)
	runtime.KeepAlive(&v)
	if err != 0 {
		return 0, 0, err
	}
	return int(r), int(m.Controllen), 0
}

// write writes to a socket.
func write(fd int, b []byte) (int, syscall.Errno) {
	r, _, err := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	runtime.KeepAlive(b)
	if err != 0 {
		return 0, err
	}
	return int(r), 0
}

// wait sleeps until one of the set is ready, or the time, below a second, is over. Without a time, which is below 0, it only
// waits for the set. It may end earlier.
func wait(set []unix.PollFd, limit time.Duration) {
	ts := &unix.Timespec{Nsec: int64(max(0, limit))}
	if limit < 0 {
		ts = nil
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(set))), uintptr(len(set)), uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	runtime.KeepAlive(set)
	runtime.KeepAlive(ts)
}
