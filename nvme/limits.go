package nvme

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits are what a target's device says of itself, in bytes. Zero is "does not
// say" or "has not", of a file on a file system that spans devices everything. From
// Documentation/ABI/stable/sysfs-block, and of a passthrough node from the disk's own
// identify data.
type Limits struct {
	Logical  uint64 // the smallest block the device addresses
	Physical uint64 // the smallest it writes without reading
	Transfer uint64 // the most one command moves; more becomes several commands
	Segments uint64 // the most pieces of memory of a command
	Boundary uint64 // where pieces of a command may meet: at multiples of it in memory; 1: anywhere
	Discard  uint64 // the granularity of discarding; 0: it cannot
	Zeroes   uint64 // the most one command zeroes; 0: zeros are written out
	FUA      bool   // a write can be durable by itself
	Cache    bool   // it has a cache that loses its content with the power
	Poll     bool   // completions can be polled for
}

// readLimits reads the attributes of a block device's queue.
func readLimits(queue string) Limits {
	n := func(name string) uint64 { return readNumber(filepath.Join(queue, name)) }
	l := Limits{Logical: n("logical_block_size"), Physical: n("physical_block_size"), Transfer: n("max_hw_sectors_kb") << 10,
		Segments: n("max_segments"), Boundary: n("virt_boundary_mask") + 1, Zeroes: n("write_zeroes_max_bytes"),
		FUA: n("fua") == 1, Cache: readLine(filepath.Join(queue, "write_cache")) == "write back", Poll: n("io_poll") == 1}
	if n("discard_max_bytes") > 0 {
		l.Discard = n("discard_granularity")
	}
	return l
}

// readNumber is the number a small file holds, zero where there is none.
func readNumber(path string) uint64 {
	n, err := strconv.ParseUint(readLine(path), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// queueOf is the directory of the queue that a block device, or the disk it is a
// partition of, has in sysfs; empty where there is none.
func queueOf(number uint64) string {
	dir, err := filepath.EvalSymlinks(sysDevice(number))
	if err != nil {
		return ""
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if st, err := os.Stat(filepath.Join(d, "queue")); err == nil && st.IsDir() {
			return filepath.Join(d, "queue")
		}
	}
	return ""
}

// findLimits asks the device a target is or lies on, and refuses zoned ones, which
// take writes in order only.
func (t *Target) findLimits() error {
	number := t.number
	if !t.block {
		var st unix.Stat_t
		if err := unix.Fstat(t.fd, &st); err != nil {
			return err
		}
		number = uint64(st.Dev)
	}
	queue := queueOf(number)
	if queue == "" {
		return nil
	}
	t.limits = readLimits(queue)
	if t.block {
		return refuseZoned(queue)
	}
	return nil
}

// refuseZoned refuses a device whose zones must be written in order.
func refuseZoned(queue string) error {
	if zoned := readLine(filepath.Join(queue, "zoned")); zoned != "" && !strings.HasPrefix(zoned, "none") {
		return &NotSupportedError{fmt.Sprintf("a zoned device (%s)", zoned), "use one without zones, or a file on a file system that knows them"}
	}
	return nil
}

// Limits says what the target's device takes and has.
func (t *Target) Limits() Limits { return t.limits }
