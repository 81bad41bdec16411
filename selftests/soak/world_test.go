package soak

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// world is the namespaces: a hub with a bridge in the middle, and around it the daemon's, those of the programs that keep up steady traffic, and
// those of programs that things happen to. Packets to be captured and to be sent on come from the hub by wires of their own.
type world struct {
	hub      *testenv.Namespace
	daemon   site
	sources  site // clients that send and read all the time
	sinks    site // who receives all the time
	other    site // a second receiver of what the sinks get
	guest    site // clients that come and go
	captured wire
	fed      wire
}

// site is a namespace with a link to the bridge, which is called net there and as the site in the hub.
type site struct {
	*testenv.Namespace
	name string
	ip   string
}

// wire leads packets from the hub to an interface of the daemon's.
type wire struct{ from, to testenv.End }

// roce is the name of the interface that RDMA goes over at each site.
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

// noIPv6 keeps the kernel from sending by itself.
func noIPv6(t *testing.T, n *testenv.Namespace) {
	t.Helper()
	n.Run(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
}

// link joins the hub with a namespace by a veth pair that is up. It goes at the end of the test, and not in the kernel's own time.
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

// wire makes a wire of that name at both ends.
func (w *world) wire(t *testing.T, name string, number byte) wire {
	t.Helper()
	w.link(t, w.daemon.Namespace, name, name)
	return wire{from: end(t, w.hub, name, number, 1), to: end(t, w.daemon.Namespace, name, number, 2)}
}

// end describes an interface. Addresses are those in the packets alone.
func end(t *testing.T, n *testenv.Namespace, name string, number, host byte) testenv.End {
	t.Helper()
	e := testenv.End{Namespace: n, Ifname: name, IP: netip.AddrFrom4([4]byte{10, 78, number, host})}
	n.Do(t, func() {
		i, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		e.Index, e.MAC = i.Index, i.HardwareAddr
	})
	return e
}

// plug sets the hub's end of a site's link up, or down.
func (w *world) plug(t *testing.T, s *site, in bool) {
	t.Helper()
	w.hub.Run(t, "ip", "link", "set", s.name, map[bool]string{true: "up", false: "down"}[in])
}

// at is a TCP address of a site.
func (s *site) at(port int) string { return net.JoinHostPort(s.ip, fmt.Sprint(port)) }

// attached are the XDP programs on the daemon's interfaces.
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
