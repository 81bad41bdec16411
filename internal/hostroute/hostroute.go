// Package hostroute looks whether the host's own traffic depends on an interface,
// so that taking packets from it can be refused. It asks in the network namespace
// of the calling thread.
package hostroute

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Default reports whether an IPv4 or IPv6 default route of the main table goes
// out of the interface. One that is not there has none.
func Default(name string) (bool, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look whether %s carries the default route: %w", name, err)
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return false, fmt.Errorf("look whether %s carries the default route: %w", name, err)
	}
	for _, r := range routes {
		if isDefault(r) && leavesBy(r, link.Attrs().Index) {
			return true, nil
		}
	}
	return false, nil
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// leavesBy reports whether a route, or one of its next hops, has the interface.
func leavesBy(r netlink.Route, index int) bool {
	if r.LinkIndex == index {
		return true
	}
	for _, hop := range r.MultiPath {
		if hop.LinkIndex == index {
			return true
		}
	}
	return false
}
