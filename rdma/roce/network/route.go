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

// Route is how packets get from a place of an interface's table to a peer: what wire.Path wants to know
// of Ethernet.
type Route struct {
	Place               int // of the source in the table
	Source, Destination rdma.GID
	SourceMAC           MAC
	DestinationMAC      MAC                    // of the peer, the group, or the gateway
	Tags                [wire.MaxTags]wire.Tag // the outer first

	// MTU is the longest packet in bytes, IP header included and Ethernet's not: the interface's, or
	// less where the route says so.
	MTU int
	// HopLimit is what the kernel would send with.
	HopLimit uint8
	// Local says that the peer's address is one of this interface's own: packets to it are not to
	// be sent.
	Local bool
	// NextHop is who has DestinationMAC: the peer, or the gateway. It is not valid of groups and of
	// ways that are Local.
	NextHop netip.Addr

	link int // index of the interface that the source is an address of
}

// key is whom a way leads to first.
func (w *Route) key() neighbourKey { return neighbourKey{w.link, w.NextHop} }

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

// TrackedRoute is a way that is in use.
type TrackedRoute struct {
	of *Interface

	// All below are guarded by the Interface's lock.
	way    Route
	err    error // why packets do not get there
	next   Route // as the routes have it now; its MAC may not be known yet. Zero: they have none
	queued bool  // in told.ways

	lastRoute    Route
	lostReported bool
}

// Track has a way kept: the neighbour is checked every ten seconds, as if the kernel itself sent to it, and Next says
// when packets must look otherwise (WayChanged) or do not get there (WayLost). The caller drops it when the way is in
// use no longer. The error is ErrClosed or ErrInterfaceGone.
func (i *Interface) Track(w Route) (*TrackedRoute, error) {
	k := &TrackedRoute{of: i, way: w, next: w, lastRoute: w}
	if err := i.track(k); err != nil {
		return nil, fmt.Errorf("keep the way to %v from %v: %w", w.Destination, w.Source, err)
	}
	i.reroute(k) // what has changed since Resolve
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

// Route is the way as it is now, and why packets do not get there if they do not: then it is what it was before.
func (k *TrackedRoute) Route() (Route, error) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	return k.way, k.err
}

// Drop ends it. Nothing is told of the way afterwards. Dropping again does nothing.
func (k *TrackedRoute) Drop() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	delete(k.of.tracked, k)
}

// difference is what is to be told of a way. The caller has the lock.
func (k *TrackedRoute) difference() What {
	switch lost := k.err != nil; {
	case lost && !k.lostReported:
		return RouteLost
	case !lost && (k.lostReported || k.lastRoute != k.way):
		return RouteChanged
	}
	return 0
}

// tell queues a way of which there is something to tell. The caller has the lock.
func (i *Interface) tell(k *TrackedRoute) {
	if !k.queued && k.difference() != 0 {
		k.queued = true
		i.reported.ways = append(i.reported.ways, k)
		i.event.raise()
	}
}

// lose says why packets do not get there.
func (i *Interface) lose(k *TrackedRoute, why error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k.err, k.next = why, Route{}
	i.tell(k)
}

// rerouteAll reroutes all ways that are kept.
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

// reroute looks up again where a way leads, and its next hop.
func (i *Interface) reroute(k *TrackedRoute) {
	i.order.Lock()
	defer i.order.Unlock()
	before, _ := k.Route()
	w, err := i.lead(before.Place, before.Destination)
	if err == nil && w.Source != before.Source {
		err = fmt.Errorf("%w: %v is no longer in the table, and %v is in its place", ErrSource, before.Source, w.Source)
	}
	switch {
	case err == nil:
		i.follow(k, w)
		i.look(k)
	case errors.Is(err, errUnknown):
		i.counter.failed(err) // the way stays as it is until the next look
	default:
		i.lose(k, err)
	}
}

// follow has a way be what the routes say, as soon as the MAC of the next hop is known.
func (i *Interface) follow(k *TrackedRoute, w Route) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k.next = w
	if !w.NextHop.IsValid() {
		k.way, k.err = w, nil
		i.tell(k)
	}
}

// look looks at the next hop of a way, as long as routes lead to one.
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

// learn takes what the kernel's table has of a neighbour, for those who wait for it and for ways over it. It reports whether
// the kernel is to be told again that it is in use.
func (i *Interface) learn(of neighbourKey, n neighbour) (again bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for w := range i.waiting {
		if w.of == of {
			select {
			case w.come <- struct{}{}:
			default: // it has news already
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

// learn reports whether the kernel must be told again that the neighbour is in use: it has forgotten it, or asked in vain
// where it used to be, which is not all that it can do.
func (k *TrackedRoute) learn(n neighbour) bool {
	switch {
	case n.valid():
		k.way, k.err = k.next, nil
		k.way.DestinationMAC = n.mac
	case n.silent() && k.err == nil:
		k.err = fmt.Errorf("%w: %v (check that it is up and on this link)", ErrUnanswered, k.next.NextHop)
		return true
	}
	return n.state == netlink.NUD_NONE
}
