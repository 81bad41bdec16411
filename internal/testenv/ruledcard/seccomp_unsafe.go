package ruledcard

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif, and response struct seccomp_notif_resp: include/uapi/linux/seccomp.h.
type notification struct {
	id         uint64
	pid, flags uint32
	nr, arch   uint32
	ip         uint64
	args       [6]uint64
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

const (
	notifyReceive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	holdUp        = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	letPass       = 0x7fff0000 // SECCOMP_RET_ALLOW
)

// notify makes the kernel suspend ioctls about cards, in the calling thread, in programs that it
// execs and in their children. The unsafe use is sound: the kernel copies the program.
func notify() (listener int, err error) {
	const setFilter, newListener = 1, 8
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the system call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_IOCTL, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 24}, // the ioctl's request
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SIOCETHTOOL, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: holdUp},
		{Code: unix.BPF_RET | unix.BPF_K, K: letPass},
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, newListener, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// next waits for a suspended call.
func next(listener int, n *notification) error {
	return ioctl(listener, notifyReceive, unsafe.Pointer(n))
}

// reply ends a suspended call.
func reply(listener int, r response) error { return ioctl(listener, notifySend, unsafe.Pointer(&r)) }

// ioctl makes one ioctl. The unsafe use is sound: both structs have the kernel's layout and outlive
// the call.
func ioctl(fd int, request uintptr, data unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(data)); errno != 0 {
		return errno
	}
	return nil
}
