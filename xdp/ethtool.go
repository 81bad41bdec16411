package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"golang.org/x/sys/unix"
)

// stringLength is ETH_GSTRING_LEN of include/uapi/linux/ethtool.h.
const stringLength = 32

// queueDrops are a driver's counters of packets that one of its queues dropped.
// veth and virtio-net call them so, and count in them also what a socket refused.
// Drivers of real cards drop before that, which rx_missed_errors says.
var queueDrops = regexp.MustCompile(`^rx(_queue_)?[0-9]+_drops$`)

// dropCounters finds the counters of a device to be summed by sumCounters.
func dropCounters(fd int, name string) (indices []int, total int, err error) {
	total, err = ethtoolStringCount(fd, name)
	if err != nil || total == 0 {
		return nil, 0, noCounters(err)
	}
	text, err := ethtoolStrings(fd, name, total)
	if err != nil {
		return nil, 0, noCounters(err)
	}
	for i := range total {
		s, _, _ := bytes.Cut(text[i*stringLength:(i+1)*stringLength], []byte{0})
		if queueDrops.Match(s) {
			indices = append(indices, i)
		}
	}
	return indices, total, nil
}

// errCounters: the names read before belong to other counters now.
var errCounters = errors.New("the driver changed its counters")

// noCounters turns "the driver has none" into no error.
func noCounters(err error) error {
	if err == nil || err == unix.EOPNOTSUPP {
		return nil
	}
	return fmt.Errorf("list the driver's counters: %w", err)
}

// sumCounters adds up counters of a device.
func sumCounters(fd int, name string, indices []int, total int) (sum uint64, err error) {
	if len(indices) == 0 {
		return 0, nil
	}
	values, err := ethtoolStats(fd, name, total)
	if err != nil {
		return 0, fmt.Errorf("read the driver's counters: %w", err)
	}
	for _, i := range indices {
		sum += values[i]
	}
	return sum, nil
}
