package xdp

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// channels is struct ethtool_channels of include/uapi/linux/ethtool.h.
type channels struct {
	cmd                                         uint32
	maxRx, maxTx, maxOther, maxCombined         uint32
	rxCount, txCount, otherCount, combinedCount uint32
}

// ifreq is struct ifreq with a pointer in it.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [40 - unix.IFNAMSIZ - unsafe.Sizeof(uintptr(0))]byte
}

// ethtool does one request. data begins with the command and stays alive and in
// place for the call, since the ifreq that points to it is on the stack or heap of
// this call and passed by pointer.
func ethtool(fd int, name string, data unsafe.Pointer) error {
	r := ifreq{data: data}
	if len(name) >= len(r.name) {
		return unix.EINVAL
	}
	copy(r.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	if errno != 0 {
		return errno
	}
	return nil
}

// rxQueues is the number of receive queues in use: what the driver says, else
// what the kernel allocated.
func rxQueues(fd int, name string, allocated int) (uint32, error) {
	c := channels{cmd: unix.ETHTOOL_GCHANNELS}
	err := ethtool(fd, name, unsafe.Pointer(&c))
	if err == nil && c.rxCount+c.combinedCount > 0 {
		return c.rxCount + c.combinedCount, nil
	}
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return 0, err
	}
	return uint32(max(allocated, 1)), nil
}
