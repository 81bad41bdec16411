package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// clock converts the arrival times that the program writes before packets to wall-clock time. The
// program has only CLOCK_MONOTONIC (bpf_ktime_get_ns), which differs from the wall clock by an
// offset that time synchronization changes.
type clock struct {
	on     bool      // the program writes arrival times
	off    bool      // the caller needs no arrival times
	card   bool      // the program also writes the card's
	stamp  arrival   // of the last received packet
	offset uint64    // wall clock minus monotonic clock, ns
	set    time.Time // when offset was measured
	wallAt uint64    // wall-clock ns at set
}

// arrival is a packet's arrival time and its clock.
type arrival struct {
	at uint64 // nanoseconds
	by umem.Clock
}

// offsetAge is the largest age of the offset.
const offsetAge = time.Second

// What the program writes before a packet: the system's time directly before it, and the
// card's before that, if it is requested.
const (
	metaBytes = 8
	cardBytes = 16
)

// batch is called once for each received batch, after it was taken from the ring. It reports
// whether the packets carry arrival times. If so, read must be called for each packet; otherwise
// stamp is the time of the batch.
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

// read reads the arrival time of the packet at addr: the card's if there is one. The kernel keeps
// it in PacketHeadroom, so the read does not leave the frame.
func (c *clock) read(r *umem.Region, addr uint64) arrival {
	if c.card {
		if at := binary.NativeEndian.Uint64(r.At(addr-cardBytes, metaBytes)); at != 0 {
			return arrival{at, umem.CardClock}
		}
	}
	return arrival{at: binary.NativeEndian.Uint64(r.At(addr-metaBytes, metaBytes)) + c.offset}
}

// measureOffset reads the wall clock between two readings of the monotonic one. It takes the
// closest of several pairs, because the thread may be interrupted between readings.
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

// ClockPolicy says which clock's arrival times the caller wants.
type ClockPolicy uint8

const (
	// SystemOnly takes the time of the system's clock when the program ran.
	SystemOnly ClockPolicy = iota
	// PreferCard uses the card's time if the driver provides it, else the system's.
	PreferCard
	// RequireCard fails if the driver does not provide the card's time. A single packet
	// without a card's time gets the system's.
	RequireCard
)

// String returns the policy's name in configuration files.
func (c ClockPolicy) String() string {
	return [...]string{"the system's clock", "the card's clock, preferred", "the card's clock"}[min(c, RequireCard)]
}

// cardClock prepares the card to stamp packets, and records in granted whether it does. In generic
// mode a program cannot ask the card; provideProgram finds that out.
func (i *Interface) cardClock() error {
	i.granted.PTPClock = -1
	if i.config.CardClock == SystemOnly {
		return nil
	}
	if err := i.device.stampPackets(&i.config); err != nil {
		return i.withoutCardClock(err)
	}
	i.granted.CardClock = true
	if info, err := unix.IoctlGetEthtoolTsInfo(i.device.ctl, i.config.Interface); err == nil {
		i.granted.PTPClock = int(info.Phc_index)
	}
	return nil
}

// withoutCardClock records why the card's times are missing, or returns that as an error if they
// are required.
func (i *Interface) withoutCardClock(why error) error {
	if i.config.CardClock == RequireCard {
		return fmt.Errorf("%w: %w (set timestamps to prefer or software)", ErrNoCardClock, why)
	}
	i.granted.CardClock, i.granted.PTPClock, i.granted.NoCardClock = false, -1, why
	return nil
}

// stampPackets makes the card stamp every packet that it receives, until restoreStamping. Drivers
// without that setting stamp or not as they are; those that stamp only packets of the Precision
// Time Protocol continue to do so.
func (d *device) stampPackets(c *Config) error {
	if !c.ownProgram() {
		return errors.New("only a program of ours asks the card, and there is none")
	}
	if err := stampsArrival(d.index); err != nil {
		return err
	}
	old, err := unix.IoctlGetHwTstamp(d.ctl, c.Interface)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && old.Rx_filter == unix.HWTSTAMP_FILTER_ALL {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask how the card stamps packets: %w", err)
	}
	all := *old
	all.Rx_filter = unix.HWTSTAMP_FILTER_ALL
	switch err := unix.IoctlSetHwTstamp(d.ctl, c.Interface, &all); {
	case err == nil:
		d.stamping = old
	case !errors.Is(err, unix.ERANGE) && !errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("have the card stamp every packet: %w", err)
	}
	return nil
}

// restoreStamping undoes stampPackets. An interface that is gone needs nothing.
func (d *device) restoreStamping() error {
	if d.stamping == nil {
		return nil
	}
	old := d.stamping
	d.stamping = nil
	link, err := d.handle.LinkByIndex(d.index)
	if err != nil {
		return nil
	}
	err = unix.IoctlSetHwTstamp(d.ctl, link.Attrs().Name, old)
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("have the card stamp packets as before: %w", err)
	}
	return nil
}
