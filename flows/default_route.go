package flows

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrTakeOver says that a flow would cut the host off its default route.
var ErrTakeOver = errors.New("the host would be cut off")

// checkTakeOver refuses a flow that takes everything from the interface that
// carries the default route, unless it was told to.
func checkTakeOver(c config.From) error {
	if c.Filter != "" || c.TakeOver {
		return nil
	}
	carries, err := carriesDefaultRoute(c.Interface)
	if err != nil {
		return fmt.Errorf("look whether %s carries the default route: %w", c.Interface, err)
	}
	if !carries {
		return nil
	}
	return fmt.Errorf("%w: %s carries the default route, and what a flow takes the host no longer sees (give a filter, or take_over: true, --take-over)", ErrTakeOver, c.Interface)
}

// carriesDefaultRoute reports whether an IPv4 or IPv6 default route of the main
// table goes out of the interface.
func carriesDefaultRoute(name string) (bool, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil // opening it says so better
	}
	if err != nil {
		return false, err
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return false, err
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
