package doctor

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/sink/order"
	"github.com/unifiedd/unifiedd/xdp"
)

// addOrders examines the way to the exchanges of flows that send orders, and their transmit queues.
func (r *Report) addOrders(n needs) {
	var checks []Check
	for i := range n.Flows {
		if o := n.Flows[i].To.Order; o != nil {
			if o.Given == "" { // else the program knows the exchange
				checks = append(checks, orderRoute(o))
			}
			checks = append(checks, orderQueue(o, n.Flows))
			checks = append(checks, besideOrders(o, n.Flows)...)
		}
	}
	if checks != nil {
		r.add("orders", checks)
	}
}

// orderRoute reports whether the route to an exchange leads out of the interface, or of a VLAN on it. If the exchange's
// name has several addresses, one such route is enough.
func orderRoute(o *config.Order) (c Check) {
	name := "route to " + o.Connect
	link, err := netlink.LinkByName(o.Interface)
	if err != nil {
		return fail(name, "interface %s: %v", o.Interface, err).with("correct to.order.interface")
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveLimit)
	defer cancel()
	all, err := order.Addresses(ctx, o.Connect)
	if err != nil {
		return fail(name, "%v", err).with("correct to.order.connect, or add the name to DNS or /etc/hosts")
	}
	for _, at := range all {
		if c = routeOut(name, at.Addr(), link, o); c.State == OK {
			break
		}
	}
	return c
}

// routeOut is orderRoute for one address.
func routeOut(name string, peer netip.Addr, link netlink.Link, o *config.Order) Check {
	routes, err := netlink.RouteGet(peer.AsSlice())
	if err != nil || len(routes) == 0 {
		return fail(name, "there is none: %v", err).with("ip route add %s dev %s", peer, o.Interface)
	}
	out, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return unknown(name, "%v", err)
	}
	a := out.Attrs()
	if a.Index == link.Attrs().Index || out.Type() == "vlan" && a.ParentIndex == link.Attrs().Index {
		return ok(name, "it leads out of %s", a.Name)
	}
	return fail(name, "it leads out of %s, and not of %s or a VLAN on it", a.Name, o.Interface).with("set to.order.interface to the interface of the route, or add a route: ip route get %s", peer)
}

// besideOrders finds flows that receive from the interface of a flow that sends orders, from some of its queues: the card has
// to put their packets there.
func besideOrders(o *config.Order, flows []config.Flow) (checks []Check) {
	queues, err := xdp.Queues(o.Interface)
	for i := range flows {
		f := &flows[i]
		if err != nil || !f.From.Takes() || f.From.Steer != "" || f.From.Queues == nil || len(f.From.Queues) >= queues || !slices.Contains(f.From.All(), o.Interface) {
			continue
		}
		checks = append(checks, warn("queues of flow "+f.Name, "it has queues %v of the %d of %s: packets that the card puts into others stay with the kernel", f.From.Queues, queues, o.Interface).
			with("set from.steer, or have the card use these queues only: ethtool -X %s equal N, or weight", o.Interface))
	}
	return checks
}

// orderQueue reports whether the transmit queue of a flow is there, and no other flow's.
func orderQueue(o *config.Order, flows []config.Flow) Check {
	name := "transmit queue for " + cmp.Or(o.Connect, "connections of program "+o.Given)
	queues, err := xdp.Queues(o.Interface)
	switch {
	case errors.Is(err, xdp.ErrInterfaceGone):
		return fail(name, "there is no interface %s", o.Interface).with("correct to.order.interface")
	case errors.Is(err, unix.EPERM):
		return unknown(name, "%v", err).with("run as root")
	case err != nil:
		return unknown(name, "%v", err)
	case o.Queue >= queues:
		return fail(name, "%s has no queue %d, only 0 to %d", o.Interface, o.Queue, queues-1).with("lower to.order.queue, or: ethtool -L %s combined N", o.Interface)
	}
	for i := range flows {
		f := &flows[i]
		other := f.To.Order != nil && f.To.Order != o && f.To.Order.Interface == o.Interface && f.To.Order.Queue == o.Queue
		takes := f.From.Takes() && slices.Contains(f.From.All(), o.Interface) && (f.From.Queues == nil || slices.Contains(f.From.Queues, o.Queue))
		if other || takes {
			return fail(name, "flow %s has queue %d of %s, too", f.Name, o.Queue, o.Interface).with("give one of them another queue: from.queues, to.order.queue")
		}
	}
	return ok(name, "queue %d of %s is there, and no other flow's", o.Queue, o.Interface)
}
