package xdp

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// clock turns the arrival times the program leaves in front of packets into
// wall-clock time. The program has only CLOCK_MONOTONIC (bpf_ktime_get_ns), which
// differs from the wall clock by an offset that time synchronization moves.
type clock struct {
	on     bool      // the program writes arrival times
	off    bool      // nobody wants any
	stamp  uint64    // of the packet last received, wall-clock ns
	offset uint64    // wall clock minus monotonic clock, ns
	set    time.Time // when offset was measured
	wallAt uint64    // wall-clock ns at set
}

// offsetAge is how old the offset may get.
const offsetAge = time.Second

// metaBytes is what the program writes in front of a packet.
const metaBytes = 8

// batch is called once for each batch received, after it was taken from the ring.
// It reports whether the packets carry arrival times; stamp is then refreshed for
// each, else it is now the batch's own time.
func (c *clock) batch(i *Interface) bool {
	if c.off {
		return false
	}
	age := time.Since(c.set) // reads one clock, where time.Now reads two
	if age >= offsetAge {
		c.adjust()
		age = 0
	}
	if !c.on || i.program.MetaRefused() {
		c.stamp = c.wallAt + uint64(age)
		return false
	}
	return true
}

// adjust follows the wall clock.
func (c *clock) adjust() {
	c.set = time.Now()
	c.wallAt = uint64(c.set.UnixNano())
	if c.on {
		c.offset = measureOffset()
	}
}

// wall reads the arrival time of the packet at addr. Kept by the kernel in
// PacketHeadroom, it never reaches in front of the frame.
func (c *clock) wall(r *umem.Region, addr uint64) uint64 {
	return binary.NativeEndian.Uint64(r.At(addr-metaBytes, metaBytes)) + c.offset
}

// measureOffset reads the wall clock between two readings of the monotonic one,
// and takes the closest of several pairs, since anything may come in between.
func measureOffset() uint64 {
	best, offset := ^uint64(0), uint64(0)
	for range 4 {
		before, wall, after := read(unix.CLOCK_MONOTONIC), read(unix.CLOCK_REALTIME), read(unix.CLOCK_MONOTONIC)
		if gap := after - before; gap < best {
			best, offset = gap, wall-before-gap/2
		}
	}
	return offset
}

// read reads a clock that every kernel has, in nanoseconds.
func read(clock int32) uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}
