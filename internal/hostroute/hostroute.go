// Package hostroute finds out whether the host's own traffic, or a session, depends on an interface, so that a
// flow can refuse to take packets from it. It uses the network namespace of the calling thread.
package hostroute

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Default reports whether an IPv4 or IPv6 default route of the main table uses the interface, or
// one that is stacked on it, such as a bridge. An interface that does not exist has no routes.
func Default(name string) (bool, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	carries := false
	if err == nil {
		carries, err = carriesDefault(link.Attrs().Index)
	}
	if err != nil {
		return false, fmt.Errorf("look whether %s carries the default route: %w", name, err)
	}
	return carries, nil
}

// Between reports whether packets between an address of this host and a peer use the interface, or one that is stacked on
// it. An interface that does not exist carries nothing, nor does any if the peer cannot be reached.
func Between(name string, own, peer netip.Addr) (bool, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	carries := false
	if err == nil {
		carries, err = carriesBetween(link.Attrs().Index, own.Unmap(), peer.Unmap())
	}
	if err != nil {
		return false, fmt.Errorf("look whether %s carries packets between %v and %v: %w", name, own, peer, err)
	}
	return carries, nil
}

// carriesBetween is Between for the interface with an index.
func carriesBetween(index int, own, peer netip.Addr) (bool, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, err
	}
	on := stack(index, links)
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, err
	}
	if slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return on[a.LinkIndex] && a.IP.Equal(own.AsSlice()) }) {
		return true, nil
	}
	routes, err := netlink.RouteGet(peer.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool { return leavesBy(r, on) }), err
}

// carriesDefault is Default for the interface with an index. A listing that a change interrupted is
// good enough.
func carriesDefault(index int) (bool, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, err
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, err
	}
	on := stack(index, links)
	return slices.ContainsFunc(routes, func(r netlink.Route) bool { return isDefault(r) && leavesBy(r, on) }), nil
}

func isDefault(r netlink.Route) bool {
	if r.Type != unix.RTN_UNICAST {
		return false
	}
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// leavesBy reports whether a route, or one of its next hops, uses one of the interfaces.
func leavesBy(r netlink.Route, on map[int]bool) bool {
	return on[r.LinkIndex] ||
		slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return on[hop.LinkIndex] })
}
