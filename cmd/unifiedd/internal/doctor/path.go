package doctor

import (
	"net"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/rdma/providers"
)

// pathRoutes compares the device of each path to a peer with the interface over which the kernel routes packets to the
// path's address: the TCP connection beside the queue pairs goes there.
func pathRoutes(name, device string, p *config.Peer) (all []Check) {
	for _, one := range append([]config.Path{{RDMA: device, Address: p.Address}}, p.Paths...) {
		all = append(all, pathRoute(name, one))
	}
	return all
}

func pathRoute(name string, p config.Path) Check {
	iface, soft := providers.Soft(p.RDMA)
	if !soft {
		iface = interfaceOf(p.RDMA)
	}
	host, _, err := net.SplitHostPort(p.Address)
	ip := net.ParseIP(host)
	if err != nil || ip == nil || iface == "" {
		return unknown(name, "the route to %s is compared with the interface of %s only if the address is one of IP, and the interface is known", p.Address, p.RDMA)
	}
	routes, err := netlink.RouteGet(ip)
	if err != nil || len(routes) == 0 {
		return warn(name, "no route to %s: %v", host, err).with("ip route add %s dev %s", host, iface)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return unknown(name, "the interface to %s: %v", host, err)
	}
	return judgeRoute(name, host, iface, link.Attrs().Name)
}

// judgeRoute says whether packets to a path's address leave by the interface of its device.
func judgeRoute(name, host, iface, leaves string) Check {
	if leaves != iface {
		return warn(name, "packets to %s leave by %s, and the path is over %s: it fails together with the other one", host, leaves, iface).
			with("give each path a network of its own, or: ip route add %s dev %s", host, iface)
	}
	return ok(name, "%s by %s", host, iface)
}
