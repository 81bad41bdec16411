package network

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// Route says how packets get from an entry of the interface's GID table to a peer: the part of a
// wire.Path that depends on Ethernet.
type Route struct {
	Place               int // index of the source in the GID table
	Source, Destination rdma.GID
	SourceMAC           MAC
	DestinationMAC      MAC                    // of the peer, the group, or the gateway
	Tags                [wire.MaxTags]wire.Tag // the outer one first

	// MTU is the longest packet in bytes, with the IP header and without Ethernet's: the interface's, or
	// less if the kernel's route says so.
	MTU int
	// HopLimit is the hop limit that the kernel would use.
	HopLimit uint8
	// Local means that the peer's address is one of this interface. Packets to it must not be sent.
	Local bool
	// NextHop is the peer or the gateway, which has DestinationMAC. It is not valid for groups and
	// for Local routes.
	NextHop netip.Addr

	link       int  // index of the interface that has the source address
	connected  bool // it is that of connection
	connection Connection
}

// key returns the neighbour that packets are sent to first.
func (w *Route) key() neighbourKey { return neighbourKey{w.link, w.NextHop} }

// of returns the connection that the route is for; nil: none.
func (w *Route) of() *Connection {
	if !w.connected {
		return nil
	}
	return &w.connection
}

// defaultHopLimit is the kernel's default.
const defaultHopLimit = 64

// route makes the kernel look up the next hop and completes w. A route over another interface
// counts as none.
func (k *kernel) route(w *Route) error {
	destination := w.Destination.Addr()
	var found []netlink.Route
	err := k.ask(func(h *netlink.Handle) (err error) {
		if w.connected {
			found, err = k.routeOf(w)
			return err
		}
		found, err = h.RouteGetWithOptions(destination.AsSlice(), &netlink.RouteGetOptions{
			OifIndex: w.link, SrcAddr: w.Source.Addr().AsSlice(),
		})
		return err
	})
	switch {
	case err != nil:
		return routeError(err, destination)
	case len(found) == 0:
		return noRoute(errNoRoute, destination)
	case found[0].LinkIndex != w.link && found[0].Type == unix.RTN_UNICAST:
		return noRoute(fmt.Errorf("%w over this interface: it leads out of %s", errNoRoute, k.nameOf(found[0].LinkIndex)), destination)
	}
	return w.follow(&found[0])
}

// errUnknown: the kernel did not say whether there is a route.
var errUnknown = errors.New("look up the route")

// routeError translates the kernel's errors: see fib6_prop in net/ipv6/route.c and fib_props in
// net/ipv4/fib_semantics.c.
func routeError(err error, destination netip.Addr) error {
	switch {
	case errors.Is(err, errClosed):
		return err
	case errors.Is(err, unix.ENODEV):
		return errGone
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return noRoute(fmt.Errorf("%w: %w", errNoRoute, err), destination)
	case errors.Is(err, unix.EINVAL):
		return noRoute(fmt.Errorf("%w: a blackhole route leads there, or the source address has just gone", errNoRoute), destination)
	case errors.Is(err, unix.EACCES):
		return noRoute(fmt.Errorf("%w: a prohibit route leads there", errNoRoute), destination)
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// follow copies what the kernel's route says into w.
func (w *Route) follow(r *netlink.Route) error {
	destination := w.Destination.Addr()
	switch {
	case r.Type != unix.RTN_UNICAST:
		return noRoute(fmt.Errorf("%w to a host: the routes have it as %s", errNoRoute, routeType(r.Type)), destination)
	case destination.Is4() && r.Table == unix.RT_TABLE_UNSPEC:
		// If the interface is given and IPv4 has no route, the kernel treats every destination as a
		// neighbour: ip_route_output_key_hash_rcu in net/ipv4/route.c.
		return noRoute(errNoRoute, destination)
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

// nextHop returns the gateway, which may be an IPv6 address on an IPv4 route, or else the
// destination.
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

// routeType returns ip-route(8)'s name for a type of routes.
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

// TrackedRoute is a route in use, which the Interface keeps up to date.
type TrackedRoute struct {
	of *Interface

	// All below are guarded by the Interface's lock.
	route  Route
	err    error // why the peer is not reachable
	next   Route // according to the kernel's routes now; its MAC may still be unknown. Zero: no route
	queued bool  // in reported.routes

	lastRoute    Route
	lostReported bool
}

// Track keeps a route up to date. It checks the neighbour every ten seconds, as the kernel would if
// it sent packets there itself. Next reports when headers must change (RouteChanged) and when the
// peer is not reachable (RouteLost). The caller drops the route after use. It fails if the
// Interface is closed or gone (ErrInterfaceGone).
func (i *Interface) Track(w Route) (*TrackedRoute, error) {
	k := &TrackedRoute{of: i, route: w, next: w, lastRoute: w}
	if err := i.track(k); err != nil {
		return nil, fmt.Errorf("track the route to %v from %v: %w", w.Destination, w.Source, err)
	}
	i.reroute(k) // it may have changed since Resolve
	return k, nil
}

func (i *Interface) track(k *TrackedRoute) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.unusable(); err != nil {
		return err
	}
	i.tracked[k] = struct{}{}
	return nil
}

// Route returns the route as it is now. If the peer is not reachable it returns the last route, and
// the reason as an error.
func (k *TrackedRoute) Route() (Route, error) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	return k.route, k.err
}

// Drop ends tracking. Next reports nothing about the route afterwards. Dropping again does nothing.
func (k *TrackedRoute) Drop() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	delete(k.of.tracked, k)
}

// difference returns what Next should report about a route. The caller holds the lock.
func (k *TrackedRoute) difference() What {
	switch lost := k.err != nil; {
	case lost && !k.lostReported:
		return RouteLost
	case !lost && (k.lostReported || k.lastRoute != k.route):
		return RouteChanged
	}
	return 0
}

// tell queues a route for Next if there is something to report. The caller holds the lock.
func (i *Interface) tell(k *TrackedRoute) {
	if !k.queued && k.difference() != 0 {
		k.queued = true
		i.reported.routes = append(i.reported.routes, k)
		i.event.raise()
	}
}

// lose records why the peer is not reachable.
func (i *Interface) lose(k *TrackedRoute, why error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k.err, k.next = why, Route{}
	i.tell(k)
}

// rerouteAll looks up all tracked routes again.
func (i *Interface) rerouteAll() {
	for _, k := range i.allTracked() {
		i.reroute(k)
	}
}

func (i *Interface) allTracked() []*TrackedRoute {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.tracked))
}

// reroute looks up a tracked route and its next hop again.
func (i *Interface) reroute(k *TrackedRoute) {
	i.order.Lock()
	defer i.order.Unlock()
	before, _ := k.Route()
	w, err := i.lead(before.Place, before.Destination, before.of())
	if err == nil && w.Source != before.Source {
		err = fmt.Errorf("%w: %v is no longer in the table, and %v is in its place", errSource, before.Source, w.Source)
	}
	switch {
	case err == nil:
		i.follow(k, w)
		i.look(k)
	case errors.Is(err, errUnknown):
		i.counter.failed(err) // the route stays as it is until the next check
	default:
		i.lose(k, err)
	}
}

// follow stores the route that the kernel has now. It takes effect when the MAC of the next hop is
// known.
func (i *Interface) follow(k *TrackedRoute, w Route) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k.next = w
	if !w.NextHop.IsValid() {
		k.route, k.err = w, nil
		i.tell(k)
	}
}

// look checks the next hop of a route, if it has one.
func (i *Interface) look(k *TrackedRoute) {
	i.mu.Lock()
	of := k.next.key()
	i.mu.Unlock()
	if !of.ip.IsValid() {
		return
	}
	n, err := i.kernel.look(of)
	i.counter.looked(err)
	if err == nil {
		i.learn(of, n)
	}
}

// learn stores the state of a neighbour for tracked routes, and wakes those that wait for it. It
// reports whether the kernel must be told again that the neighbour is in use.
func (i *Interface) learn(of neighbourKey, n neighbour) (again bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for w := range i.waiting {
		if w.of == of {
			select {
			case w.come <- struct{}{}:
			default: // it already has a notice
			}
		}
	}
	for k := range i.tracked {
		if k.next.key() == of {
			again = k.learn(n) || again
			i.tell(k)
		}
	}
	return again
}

// learn reports whether the kernel must be told again that the neighbour is in use. That is so if
// the kernel has deleted the entry, or if it got no answer from the neighbour's old MAC: it then
// asks by broadcast.
func (k *TrackedRoute) learn(n neighbour) bool {
	switch {
	case n.valid():
		k.route, k.err = k.next, nil
		k.route.DestinationMAC = n.mac
	case n.failed() && k.err == nil:
		k.err = fmt.Errorf("%w: %v (check that it is up and on this link)", errUnanswered, k.next.NextHop)
		return true
	}
	return n.state == netlink.NUD_NONE
}
