package main

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// errTakeOver says that the host would be cut off.
var errTakeOver = errors.New("the host would be cut off")

// checkTakeOver refuses to take everything from the interface that carries the
// default route.
func checkTakeOver(o options) error {
	if o.mode == tx || o.filter != "" || o.takeOver {
		return nil
	}
	link, err := netlink.LinkByName(o.iface)
	if err != nil {
		return nil // opening it says better what is wrong
	}
	carries, err := carriesDefaultRoute(link.Attrs().Index)
	if err != nil {
		return fmt.Errorf("look whether %s carries the default route: %w", o.iface, err)
	}
	if carries {
		return fmt.Errorf("%w: %s carries the default route, and what is taken the host no longer sees (give a -filter, or -take-over)", errTakeOver, o.iface)
	}
	return nil
}

// carriesDefaultRoute reports whether a default route of the main table goes out of
// the interface.
func carriesDefaultRoute(index int) (bool, error) {
	main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE)
	if err != nil {
		return false, err
	}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		if r.LinkIndex == index {
			return true, nil
		}
		for _, hop := range r.MultiPath {
			if hop.LinkIndex == index {
				return true, nil
			}
		}
	}
	return false, nil
}
