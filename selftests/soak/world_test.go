package soak

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// world has the network namespaces. The hub has a bridge and connects the others: the daemon's,
// those of the programs with steady traffic, and those of the programs that suffer faults. Packets
// for the capture and the feed come from the hub over wires of their own.
type world struct {
	hub      *testenv.Namespace
	daemon   site
	sources  site // clients that send and read all the time
	sinks    site // receivers that run all the time
	other    site // a second receiver of the same messages
	guest    site // clients that come and go
	captured wire
	fed      wire
}

// site is a namespace with a link to the bridge. The link is called net in the namespace. In the
// hub it has the name of the site.
type site struct {
	*testenv.Namespace
	name string
	ip   string
}

// wire connects the hub with an interface of the daemon.
type wire struct{ from, to testenv.End }

// roce is the name of the interface that carries RDMA at each site.
const roce = "net"

func newWorld(t *testing.T) *world {
	t.Helper()
	for _, tool := range []string{"ip", "ethtool"} {
		testenv.Tool(t, tool)
	}
	w := &world{hub: testenv.NewNamespace(t)}
	noIPv6(t, w.hub)
	w.hub.Run(t, "ip", "link", "add", "bridge", "type", "bridge")
	w.hub.Run(t, "ip", "link", "set", "bridge", "up")
	for i, s := range []*site{&w.daemon, &w.sources, &w.sinks, &w.other, &w.guest} {
		name := []string{"daemon", "sources", "sinks", "other", "guest"}[i]
		*s = site{Namespace: testenv.NewNamespace(t), name: name, ip: fmt.Sprintf("10.77.9.%d", i+1)}
		noIPv6(t, s.Namespace)
		s.Run(t, "ip", "link", "set", "lo", "up")
		w.link(t, s.Namespace, name, roce)
		s.Run(t, "ip", "address", "add", s.ip+"/24", "dev", roce)
		w.hub.Run(t, "ip", "link", "set", name, "master", "bridge")
	}
	w.captured = w.wire(t, "captured", 1)
	w.fed = w.wire(t, "fed", 2)
	return w
}

// noIPv6 disables IPv6, so that the kernel sends no packets by itself.
func noIPv6(t *testing.T, n *testenv.Namespace) {
	t.Helper()
	n.Run(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
}

// link joins the hub with a namespace by a veth pair that is up. The end of the test removes it.
// Without that the kernel would remove it later, at a time of its own.
func (w *world) link(t *testing.T, n *testenv.Namespace, here, there string) {
	t.Helper()
	w.hub.Run(t, "ip", "link", "add", here, "mtu", "1500", "type", "veth", "peer", "name", there, "mtu", "1500", "netns", n.Name)
	t.Cleanup(func() { w.hub.Run(t, "ip", "link", "delete", here) })
	for _, end := range []struct {
		*testenv.Namespace
		name string
	}{{w.hub, here}, {n, there}} {
		end.Run(t, "ethtool", "-K", end.name, "tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off")
		end.Run(t, "ip", "link", "set", end.name, "up")
	}
}

// wire makes a wire whose two ends have the same name.
func (w *world) wire(t *testing.T, name string, number byte) wire {
	t.Helper()
	w.link(t, w.daemon.Namespace, name, name)
	return wire{from: end(t, w.hub, name, number, 1), to: end(t, w.daemon.Namespace, name, number, 2)}
}

// end describes an interface. Only the packets have its address; the interface has none.
func end(t *testing.T, n *testenv.Namespace, name string, number, host byte) testenv.End {
	t.Helper()
	e := testenv.End{Namespace: n, Ifname: name, IP: netip.AddrFrom4([4]byte{10, 78, number, host})}
	n.Do(t, func() {
		i, err := net.InterfaceByName(name)
		testenv.Must(t, err)
		e.Index, e.MAC = i.Index, i.HardwareAddr
	})
	return e
}

// plug sets the hub's end of a site's link up or down.
func (w *world) plug(t *testing.T, s *site, in bool) {
	t.Helper()
	w.hub.Run(t, "ip", "link", "set", s.name, map[bool]string{true: "up", false: "down"}[in])
}

// at is a TCP address of a site.
func (s *site) at(port int) string { return net.JoinHostPort(s.ip, fmt.Sprint(port)) }

// attached lists the daemon's interfaces that have XDP programs.
func (w *world) attached(t *testing.T) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(w.daemon.Run(t, "ip", "-oneline", "link", "show")) {
		if strings.Contains(line, "xdp") {
			all = append(all, line)
		}
	}
	return strings.Join(all, "")
}
