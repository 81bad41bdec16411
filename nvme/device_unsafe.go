package nvme

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deviceSize returns a block device's size in bytes (BLKGETSIZE64). The kernel writes to size only
// during the call.
func deviceSize(fd int) (uint64, error) {
	var size uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, errno
	}
	return size, nil
}

// adminIdentify sends an Identify with this CNS to an NVMe disk. The answer is in page. The kernel
// writes to page only during the call, and returns the disk's status as a positive number.
func adminIdentify(fd int, nsid, cns uint32, page []byte) error {
	var pin runtime.Pinner // the kernel uses a pointer that Go sees as a number
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(page))
	c := nvmeCommand{opcode: nvmeIdentify, nsid: nsid, addr: address(page), dataLen: uint32(len(page)), cdw10: cns}
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), nvmeAdmin, uintptr(unsafe.Pointer(&c)))
	if errno != 0 {
		return errno
	}
	if s := Status(status & statusBits); s != 0 {
		return s
	}
	return nil
}
