package tcpsend

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options of the kernel that golang.org/x/sys has no names for (include/uapi/linux/tcp.h).
const (
	repairOn       = 1
	repairOff      = -1 // without a window probe
	queueReceive   = 1
	queueSend      = 2
	tcpTimestamp   = 24
	repairWindow   = 29
	optionECN      = 8  // TCPI_OPT_ECN
	optionMicro    = 64 // TCPI_OPT_USEC_TS
	optionStamps   = 1  // TCPI_OPT_TIMESTAMPS
	stateConnected = 1  // TCP_ESTABLISHED
	congestionOpen = 0  // TCP_CA_Open
)

// window is struct tcp_repair_window. Of its fields those two are used that say what this end offered last.
type window [5]uint32

const (
	windowOffered      = 3 // rcv_wnd
	windowAcknowledged = 4 // rcv_wup
)

// The calls below do not block and are short, so they are hidden from the Go scheduler: see package xdp.

// send gives bytes to the socket, and returns how many it took.
func send(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// receive takes bytes from the socket.
func receive(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// disconnect resets a connection (connect with AF_UNSPEC), which does not block.
func disconnect(fd int) unix.Errno {
	to := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to))
	return errno
}

// set sets an option of TCP.
func set(fd, option int, value int32) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, uintptr(option), uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	return errno
}

// get fills v with an option of TCP. An older kernel may fill the beginning only.
func get[T any](fd, option int, v *T) unix.Errno {
	size := uint32(unsafe.Sizeof(*v))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, uintptr(option), uintptr(unsafe.Pointer(v)), uintptr(unsafe.Pointer(&size)), 0)
	return errno
}

// waiting returns how many bytes recv would give (SIOCINQ).
func waiting(fd int) (n int32, errno unix.Errno) {
	_, _, errno = unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCINQ, uintptr(unsafe.Pointer(&n)))
	return n, errno
}

// unsent returns how many bytes the kernel has not transmitted yet (SIOCOUTQNSD).
func unsent(fd int) (n int32, errno unix.Errno) {
	_, _, errno = unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), siocOutqNSD, uintptr(unsafe.Pointer(&n)))
	return n, errno
}

// outstanding returns how many bytes are not acknowledged (SIOCOUTQ).
func outstanding(fd int) (n int32, errno unix.Errno) {
	_, _, errno = unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	return n, errno
}

// siocOutqNSD is SIOCOUTQNSD of include/uapi/linux/sockios.h.
const siocOutqNSD = 0x894B

// scales returns the byte of TCP_INFO with the scales of both windows, for which golang.org/x/sys has no name.
func scales(i *unix.TCPInfo) byte { return (*[8]byte)(unsafe.Pointer(i))[6] }

// mapWords maps the value of a BPF map as words. The caller unmaps memory.
func mapWords(fd int) (words *[ingressWords]atomic.Uint32, memory []byte, err error) {
	memory, err = unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	// Sound: the mapping begins at a page, is longer than the words, and is unmapped after their last use.
	return (*[ingressWords]atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(memory))), memory, nil
}
