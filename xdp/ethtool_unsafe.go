package xdp

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests and layouts: include/uapi/linux/ethtool.h.

// channels is struct ethtool_channels.
type channels struct {
	cmd                                         uint32
	maxRx, maxTx, maxOther, maxCombined         uint32
	rxCount, txCount, otherCount, combinedCount uint32
}

// stringSetInfo is struct ethtool_sset_info for one set.
type stringSetInfo struct {
	cmd, reserved uint32
	mask          uint64
	count         uint32
}

// setStats is ETH_SS_STATS, the set of counter names.
const setStats = 1

// maxCounters bounds the number of counters that a driver reports.
const maxCounters = 1 << 16

// roomy returns for how many counters to allocate memory when the driver says that it has n. Older kernels
// write all counters without checking the size, and the number changes with the number of queues.
func roomy(n int) int { return 2*n + 4096 }

// ifreq is struct ifreq with a pointer as its data.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [40 - unix.IFNAMSIZ - unsafe.Sizeof(uintptr(0))]byte
}

// ethtool makes one request. data points to a request that begins with its command and has room for
// the answer. The unsafe use is sound: ifreq holds data as a pointer, so it stays alive, and the
// heap does not move.
func ethtool(fd int, name string, data unsafe.Pointer) error {
	r := ifreq{data: data}
	if len(name) >= len(r.name) {
		return unix.ENODEV
	}
	copy(r.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	if errno != 0 {
		return errno
	}
	return nil
}

// ringParameters is struct ethtool_ringparam.
type ringParameters struct {
	cmd                                 uint32
	maxRx, maxRxMini, maxRxJumbo, maxTx uint32
	rx, rxMini, rxJumbo, tx             uint32
}

// ringEntries returns how many descriptors each of a card's receive rings has.
func ringEntries(fd int, name string) (uint32, error) {
	r := &ringParameters{cmd: unix.ETHTOOL_GRINGPARAM}
	err := ethtool(fd, name, unsafe.Pointer(r))
	return r.rx, err
}

// value is struct ethtool_value.
type value struct{ cmd, data uint32 }

// rxQueues returns the number of receive queues in use. If the driver does not report it, it is the
// number that the kernel allocated.
func rxQueues(fd int, name string, allocated int) (uint32, error) {
	c := &channels{cmd: unix.ETHTOOL_GCHANNELS}
	err := ethtool(fd, name, unsafe.Pointer(c))
	if err == nil && c.rxCount+c.combinedCount > 0 {
		return c.rxCount + c.combinedCount, nil
	}
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return 0, fmt.Errorf("count the queues: %w", err)
	}
	return uint32(max(allocated, 1)), nil
}

// ethtoolValue makes a request whose argument and answer are one number.
func ethtoolValue(fd int, name string, cmd, data uint32) (uint32, error) {
	v := &value{cmd: cmd, data: data}
	err := ethtool(fd, name, unsafe.Pointer(v))
	return v.data, err
}

// ethtoolStringCount returns how many counters the driver has.
func ethtoolStringCount(fd int, name string) (int, error) {
	q := &stringSetInfo{cmd: unix.ETHTOOL_GSSET_INFO, mask: 1 << setStats}
	if err := ethtool(fd, name, unsafe.Pointer(q)); err != nil {
		return 0, err
	}
	if q.mask == 0 {
		return 0, nil
	}
	return int(min(q.count, maxCounters)), nil
}

// ethtoolStrings returns the names of n counters, stringLength bytes each.
func ethtoolStrings(fd int, name string, n int) ([]byte, error) {
	b := make([]uint32, 3+roomy(n)*stringLength/4) // cmd, set, count, names
	b[0], b[1], b[2] = unix.ETHTOOL_GSTRINGS, setStats, uint32(n)
	if err := ethtool(fd, name, unsafe.Pointer(&b[0])); err != nil {
		return nil, err
	}
	// Sound: the same memory seen as bytes, from the fourth word on.
	return unsafe.Slice((*byte)(unsafe.Pointer(&b[3])), n*stringLength), nil
}

// ethtoolStats returns the values of n counters.
func ethtoolStats(fd int, name string, n int) ([]uint64, error) {
	b := make([]uint64, 1+roomy(n)) // cmd and count, values
	head := (*[2]uint32)(unsafe.Pointer(&b[0]))
	head[0], head[1] = unix.ETHTOOL_GSTATS, uint32(n)
	if err := ethtool(fd, name, unsafe.Pointer(head)); err != nil {
		return nil, err
	}
	if int(head[1]) != n {
		return nil, fmt.Errorf("%w: it had %d", errCounters, n) // newer kernels return 0 instead of the number
	}
	return b[1 : 1+n], nil
}
