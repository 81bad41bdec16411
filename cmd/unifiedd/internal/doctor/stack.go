package doctor

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/netdev"
)

// findStack finds out of which interfaces the card is made, and whether it is the slave of a bond.
func (c *card) findStack(link netlink.Link) error {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	c.stack = netdev.StackOf(link, links)
	for _, l := range links {
		if bond, is := l.(*netlink.Bond); is && bond.Index == c.MasterIndex {
			c.bond = bond
		}
	}
	return nil
}

// instead is the remedy for an interface without XDP of its own.
func (c card) instead(otherwise string) string {
	if c.stack.Names() != "" {
		return fmt.Sprintf("use %s below it", c.stack.Names())
	}
	return otherwise
}

// bonded says what the program of a flow on a bond, or on a slave of one, receives.
func (c card) bonded() []Check {
	const name = "bond"
	if c.stack.Bond {
		return []Check{warn(name, "mode %s: the program runs in generic mode, slowly, because the kernel passes packets of a slave to no socket of the bond", c.stack.Mode).
			with("%s", c.instead("add slaves, and receive from those"))}
	}
	if c.bond == nil {
		return nil
	}
	detail := fmt.Sprintf("slave of %s (mode %v): a flow takes packets before the bond does", c.bond.Name, c.bond.Mode)
	if c.bond.Mode == netlink.BOND_MODE_802_3AD && c.hasFlow && c.flow.From.TakesAll() {
		return []Check{warn(name, "%s, also those of LACP, without which the bond does not use the slave", detail).
			with(`give flow %s a filter such as "not ether proto 0x8809"`, c.flow.Name)}
	}
	return []Check{ok(name, "%s", detail)}
}
