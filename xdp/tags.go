package xdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// flagStripTags is ETH_FLAG_RXVLAN of include/uapi/linux/ethtool.h: the card takes
// VLAN tags out of packets and writes them into its descriptors, where an XDP program
// cannot see them (but for few drivers, with bpf_xdp_metadata_rx_vlan_tag).
const flagStripTags = 1 << 8

// keepTags has the card leave VLAN tags in packets, until restoreTags. The host
// receives them all the same: its stack finds a tag in the packet, too. A card that
// cannot otherwise keeps taking them out, which Granted says.
func (d *device) keepTags(name string) error {
	flags, err := ethtoolValue(d.ctl, name, unix.ETHTOOL_GFLAGS, 0)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && flags&flagStripTags == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask whether the card takes VLAN tags out: %w", err)
	}
	switch _, err = ethtoolValue(d.ctl, name, unix.ETHTOOL_SFLAGS, flags&^flagStripTags); {
	case err == nil:
		d.keepsTags = true
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM): // fixed, or not ours to set
		d.stripsTags = true
	default:
		return fmt.Errorf("have VLAN tags left in packets: %w", err)
	}
	return nil
}

// restoreTags undoes keepTags. An interface that is gone needs nothing.
func (d *device) restoreTags() error {
	if !d.keepsTags {
		return nil
	}
	d.keepsTags = false
	link, err := d.handle.LinkByIndex(d.index)
	if err != nil {
		return nil
	}
	name := link.Attrs().Name
	flags, err := ethtoolValue(d.ctl, name, unix.ETHTOOL_GFLAGS, 0)
	if err == nil {
		_, err = ethtoolValue(d.ctl, name, unix.ETHTOOL_SFLAGS, flags|flagStripTags)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("have the card take VLAN tags out of packets again: %w", err)
	}
	return nil
}
