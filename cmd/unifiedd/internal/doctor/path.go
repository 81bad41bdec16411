package doctor

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/rdma/providers"
)

// pathRoutes compares the device of each path to a peer with the interface over which the kernel routes packets to the
// path's address: the TCP connection beside the queue pairs goes there.
func pathRoutes(name, device string, p *config.Peer) (all []Check) {
	for _, one := range append([]config.Path{{RDMA: device, Address: p.Address, Others: p.Others}}, p.Paths...) {
		for _, address := range append([]string{one.Address}, one.Others...) {
			all = append(all, pathRoute(name, one.RDMA, address))
		}
	}
	return all
}

// memberRoutes does the same for the paths between the members of a group, if there are several. A witness has no device:
// its connections may go any way.
func memberRoutes(f *config.Flow) (all []Check) {
	g := f.To.Replicas
	for _, m := range g.Members {
		if m.Name == g.Self || m.Peer != "" || len(f.From.Paths) == 0 {
			continue
		}
		name := fmt.Sprintf("member %s", m.Name)
		all = append(all, memberRoute(name, f.From.RDMA, m.Address, m.Clients)...)
		for k, p := range m.Paths {
			all = append(all, memberRoute(name, f.From.Paths[k].RDMA, p.Address, p.Clients)...)
		}
	}
	return all
}

// memberRoute compares both addresses of a member on a path. Mostly they have the same host. A witness has no clients.
func memberRoute(name, device, address, clients string) (all []Check) {
	all = append(all, pathRoute(name, device, address))
	host, _, _ := net.SplitHostPort(address) // the configuration's checks report a wrong one
	if other, _, _ := net.SplitHostPort(clients); clients != "" && other != host {
		all = append(all, pathRoute(name, device, clients))
	}
	return all
}

func pathRoute(name, device, address string) Check {
	iface, soft := providers.Soft(device)
	if !soft {
		iface = interfaceOf(device)
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if err != nil || ip == nil || iface == "" {
		return unknown(name, "the route to %s is compared with the interface of %s only if the address is one of IP, and the interface is known", address, device)
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
