package network

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// defaultHopLimit is the kernel's, where neither route nor administrator say otherwise.
const defaultHopLimit = 64

// route has the kernel look up whom packets go to first, and completes the way with it. A
// route that leads out of another interface is none.
func (k *kernel) route(w *Route) error {
	destination := w.Destination.Addr()
	var found []netlink.Route
	err := k.ask(func(h *netlink.Handle) (err error) {
		found, err = h.RouteGetWithOptions(destination.AsSlice(), &netlink.RouteGetOptions{
			OifIndex: w.link, SrcAddr: w.Source.Addr().AsSlice(),
		})
		return err
	})
	switch {
	case err != nil:
		return routeError(err, destination)
	case len(found) == 0:
		return noRoute(ErrNoRoute, destination)
	}
	return w.follow(&found[0])
}

// errUnknown: the kernel did not say whether there is a route.
var errUnknown = errors.New("look up the route")

// routeError says what the kernel means: fib6_prop in net/ipv6/route.c and fib_props in net/ipv4/fib_semantics.c.
func routeError(err error, destination netip.Addr) error {
	switch {
	case errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, unix.ENODEV):
		return errGone
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return noRoute(fmt.Errorf("%w: %w", ErrNoRoute, err), destination)
	case errors.Is(err, unix.EINVAL):
		return noRoute(fmt.Errorf("%w: a blackhole route leads there, or the source address has just gone", ErrNoRoute), destination)
	case errors.Is(err, unix.EACCES):
		return noRoute(fmt.Errorf("%w: a prohibit route leads there", ErrNoRoute), destination)
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// follow takes from a route what a way has of it.
func (w *Route) follow(r *netlink.Route) error {
	destination := w.Destination.Addr()
	switch {
	case r.Type != unix.RTN_UNICAST:
		return noRoute(fmt.Errorf("%w to a host: the routes have it as %s", ErrNoRoute, routeType(r.Type)), destination)
	case r.LinkIndex != w.link:
		return noRoute(fmt.Errorf("%w over this interface: it leads out of another", ErrNoRoute), destination)
	case destination.Is4() && r.Table == unix.RT_TABLE_UNSPEC:
		// Where IPv4 is told the interface and has no route, it takes every destination for a neighbour:
		// ip_route_output_key_hash_rcu in net/ipv4/route.c.
		return noRoute(ErrNoRoute, destination)
	}
	w.NextHop = nextHop(r, destination)
	if r.MTU > 0 {
		w.MTU = min(w.MTU, r.MTU)
	}
	w.HopLimit = defaultHopLimit
	if r.Hoplimit > 0 && r.Hoplimit <= 255 {
		w.HopLimit = uint8(r.Hoplimit)
	}
	return nil
}

// nextHop is the gateway, which IPv4 may have on IPv6, or else the destination.
func nextHop(r *netlink.Route, destination netip.Addr) netip.Addr {
	if gw, ok := netip.AddrFromSlice(r.Gw); ok && !gw.IsUnspecified() {
		return gw.Unmap()
	}
	if via, ok := r.Via.(*netlink.Via); ok {
		if gw, ok := netip.AddrFromSlice(via.Addr); ok {
			return gw.Unmap()
		}
	}
	return destination
}

// noRoute adds the remedy.
func noRoute(err error, destination netip.Addr) error {
	return fmt.Errorf("%w (see: ip route get %v; add a route, or choose the address of another interface)", err, destination)
}

// routeType is how ip-route(8) calls a type of routes.
func routeType(t int) string {
	names := map[int]string{
		unix.RTN_LOCAL: "local: it is an address of this host's", unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast",
		unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit",
	}
	if name, ok := names[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", t)
}
