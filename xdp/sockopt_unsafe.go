package xdp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setInt sets a 32-bit option of the AF_XDP level.
func setInt(fd, option int, value uint32) error {
	return unix.SetsockoptInt(fd, unix.SOL_XDP, option, int(value))
}

// registerUMEM registers memory with the socket (XDP_UMEM_REG). metadata is the length of what is in front of packets that
// are sent.
func registerUMEM(fd int, memory []byte, chunk, headroom, flags, metadata uint32) error {
	reg := unix.XDPUmemReg{
		// Sound: the kernel pins the pages; memory is a mapping, not of the heap.
		Addr:     uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))),
		Len:      uint64(len(memory)),
		Size:     chunk,
		Headroom: headroom,
		Flags:    flags,

		Tx_metadata_len: metadata,
	}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// getStruct fills v with an option of the AF_XDP level. It fails on a kernel that knows only a part
// of v, which is too old.
func getStruct[T any](fd, option int, v *T) error {
	size := uint32(unsafe.Sizeof(*v))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(v)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	if uintptr(size) != unsafe.Sizeof(*v) {
		return fmt.Errorf("the kernel answered %d bytes of %d", size, unsafe.Sizeof(*v))
	}
	return nil
}

func mmapOffsets(fd int) (off unix.XDPMmapOffsets, err error) {
	err = getStruct(fd, unix.XDP_MMAP_OFFSETS, &off)
	return off, err
}

func kernelStatistics(fd int) (s unix.XDPStatistics, err error) {
	err = getStruct(fd, unix.XDP_STATISTICS, &s)
	return s, err
}

// isZeroCopy asks whether a bound socket was granted zero copy.
func isZeroCopy(fd int) (bool, error) {
	var flags uint32
	err := getStruct(fd, unix.XDP_OPTIONS, &flags)
	return flags&unix.XDP_OPTIONS_ZEROCOPY != 0, err
}
