package xdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ClockPolicy says whose times of arrival are wanted.
type ClockPolicy uint8

const (
	// SystemOnly takes the time when the program ran, of the system's clock.
	SystemOnly ClockPolicy = iota
	// PreferCard takes the card's where the driver gives it, else the system's.
	PreferCard
	// RequireCard fails where the driver does not give the card's. A single packet
	// that the card has no time for has the system's all the same.
	RequireCard
)

// String says what is wanted.
func (c ClockPolicy) String() string {
	return [...]string{"the system's clock", "the card's clock, preferred", "the card's clock"}[min(c, RequireCard)]
}

// cardClock prepares the card to stamp packets, and says in granted whether it does. A
// program in generic mode cannot ask the card, which provideProgram finds out.
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

// withoutCardClock notes why there are no times of the card's, or fails with that.
func (i *Interface) withoutCardClock(why error) error {
	if i.config.CardClock == RequireCard {
		return fmt.Errorf("%w: %w (set timestamps to prefer or software)", ErrNoCardClock, why)
	}
	i.granted.CardClock, i.granted.PTPClock, i.granted.NoCardClock = false, -1, why
	return nil
}

// stampPackets has the card stamp every packet it receives, until restoreStamping.
// Drivers that know no such setting stamp, or do not, on their own; those that stamp
// packets of the Precision Time Protocol only go on with that.
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
