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
	card   bool      // it writes the card's, too
	stamp  arrival   // of the packet last received
	offset uint64    // wall clock minus monotonic clock, ns
	set    time.Time // when offset was measured
	wallAt uint64    // wall-clock ns at set
}

// arrival is when a packet arrived, and by which clock.
type arrival struct {
	at uint64 // nanoseconds
	by umem.Clock
}

// offsetAge is how old the offset may get.
const offsetAge = time.Second

// What the program writes in front of a packet: the system's time right there, and the
// card's before it, where that is asked for.
const (
	metaBytes = 8
	cardBytes = 16
)

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
		c.stamp = arrival{at: c.wallAt + uint64(age)}
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

// read reads the arrival time of the packet at addr: the card's, where there is one.
// Kept by the kernel in PacketHeadroom, it never reaches in front of the frame.
func (c *clock) read(r *umem.Region, addr uint64) arrival {
	if c.card {
		if at := binary.NativeEndian.Uint64(r.At(addr-cardBytes, metaBytes)); at != 0 {
			return arrival{at, umem.CardClock}
		}
	}
	return arrival{at: binary.NativeEndian.Uint64(r.At(addr-metaBytes, metaBytes)) + c.offset}
}

// measureOffset reads the wall clock between two readings of the monotonic one,
// and takes the closest of several pairs, since anything may come in between.
func measureOffset() uint64 {
	best, offset := ^uint64(0), uint64(0)
	for range 4 {
		before, wall, after := now(unix.CLOCK_MONOTONIC), now(unix.CLOCK_REALTIME), now(unix.CLOCK_MONOTONIC)
		if gap := after - before; gap < best {
			best, offset = gap, wall-before-gap/2
		}
	}
	return offset
}

// now reads a clock that every kernel has, in nanoseconds.
func now(clock int32) uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}
