package xdp

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// findKind finds out of what other interfaces the device is made. A card is made of none.
func (d *device) findKind(link netlink.Link) error {
	d.kind = netdev.Of(link).Kind
	if d.kind == "device" || d.kind == "veth" {
		return nil
	}
	links, err := d.handle.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	d.stack = netdev.StackOf(link, links)
	return nil
}

// below names the interfaces that the device is made of, for a sentence; "" if it is made of none.
func (d *device) below() string { return d.stack.Names() }

// describe is the name of a device that is made of others, with its kind and those.
func (d *device) describe() string {
	switch {
	case d.stack.Bond:
		return fmt.Sprintf("%s (bond of %s, mode %s)", d.name, orNone(d.below()), d.stack.Mode)
	case d.below() != "":
		return fmt.Sprintf("%s (%s on %s)", d.name, d.kind, d.below())
	}
	return d.name
}

func orNone(names string) string {
	if names == "" {
		return "no interfaces"
	}
	return names
}

// passedOver are kinds of interfaces to which the kernel assigns packets only after XDP programs have run on the interface
// below, or without running any: the packet's device is changed in the IP layer (l3mdev), or by tc (drivers/net/ifb.c). What
// to use instead.
var passedOver = map[string]string{"vrf": "capture from its slaves", "ifb": "capture from the interface whose packets are redirected to it"}

// errBond is why a bond has no zero copy and no program in the driver. A bond passes a program on to its slaves.
// Packets then belong to the queues of the slaves, and the kernel gives a socket only packets of the queue that it is
// bound to (xsk_rcv_check in net/xdp/xsk.c): it would drop each of them.
var errBond = errors.New("a program in driver mode runs on the slaves, and the kernel passes packets of a slave to no socket of the bond")

// suitKind adapts the configuration to the kind of the device, or refuses it.
func (i *Interface) suitKind() error {
	c, d := &i.config, i.device
	if use := passedOver[d.kind]; use != "" && c.Direction.receives() {
		return fmt.Errorf("%s (%s): %w (%s, or from.engine: packet)", d.describe(), d.kind, ErrPassedOver, use)
	}
	if !d.stack.Bond || !c.ownProgram() {
		return nil
	}
	if c.Mode == bpf.Driver {
		return fmt.Errorf("%s: %w: %w (use generic mode, or receive from the slaves)", d.describe(), bpf.ErrNoDriverMode, errBond)
	}
	c.Mode = bpf.Generic
	if c.Policy != Copy {
		i.granted.Refused = append(i.granted.Refused, Refusal{ZeroCopy: true, Err: errBond})
	}
	return nil
}
