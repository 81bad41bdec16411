package testenv

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// NewSwitch makes n namespaces, each with one end of a veth pair. The other ends are ports of a bridge
// in a namespace of its own. MTU and offloads are as those of NewPair. The end of the test removes
// everything.
func NewSwitch(t testing.TB, n int, o PairOptions) []*End {
	t.Helper()
	return newSwitch(t, n, o, func(i int) End { return newEnd(t, 'S', byte(i+1), o) })
}

// SecondSwitch gives the namespaces of ends another interface each, which are joined by a switch of their own. Their
// addresses are in another network.
func SecondSwitch(t testing.TB, ends []*End, o PairOptions) []*End {
	t.Helper()
	return newSwitch(t, len(ends), o, func(i int) End {
		host := byte(i + 1)
		return End{
			Namespace: ends[i].Namespace, Ifname: fmt.Sprintf("uT%d", counter.Load()), MAC: net.HardwareAddr{2, 0x77, 0, 0, 1, host},
			IP: netip.AddrFrom4([4]byte{10, 77, 1, host}), IP6: netip.AddrFrom16([16]byte{0xfd, 0x77, 1, 15: host}),
		}
	})
}

func newSwitch(t testing.TB, n int, o PairOptions, end func(i int) End) []*End {
	t.Helper()
	if o.MTU == 0 {
		o.MTU = 1500
	}
	o.Queues = 1
	hub := NewNamespace(t)
	hub.Do(t, func() { quietIPv6(t, false) })
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "hub", o.MTU
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	Mustf(t, hub.handle(t).LinkAdd(bridge), "make a bridge")
	t.Cleanup(func() { _ = hub.handle(t).LinkDel(bridge) })
	(&End{Namespace: hub}).setUp(t, "hub")
	var all []*End
	for i := range n {
		e := end(i)
		port := End{Namespace: hub, Ifname: fmt.Sprintf("p%d", i+1), MAC: append(e.MAC[:0:0], e.MAC...)}
		port.MAC[1], port.MAC[4] = 0x78, e.MAC[4]+1
		p := &Pair{A: e, B: port, MTU: o.MTU, Queues: 1}
		p.join(t, o)
		Mustf(t, hub.handle(t).LinkSetMaster(port.link(t), bridge), "add a port to the bridge")
		p.A.offloadsOff(t)
		p.B.offloadsOff(t)
		p.A.up(t, o)
		p.B.setUp(t, p.B.Ifname)
		p.A.port = &p.B
		all = append(all, &p.A)
	}
	for _, e := range all {
		e.awaitCarrier(t)
	}
	return all
}

// Query makes the bridge to which the end belongs ask for the members of multicast groups every two seconds, forget
// members that do not answer within three, and pass on what members want only. It returns when that is in force.
func (e *End) Query(t testing.TB) {
	t.Helper()
	hub := e.port.Namespace
	hub.Do(t, func() {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/hub/disable_ipv6", []byte("0"), 0); err != nil && !os.IsNotExist(err) {
			t.Fatalf("give the bridge IPv6: %v", err)
		}
	})
	hub.Run(t, "ip", "link", "set", "hub", "type", "bridge", "mcast_snooping", "1", "mcast_igmp_version", "3", "mcast_mld_version", "2",
		"mcast_query_interval", "200", "mcast_query_response_interval", "100", "mcast_membership_interval", "300",
		"mcast_startup_query_interval", "50", "mcast_last_member_interval", "20")
	time.Sleep(2 * time.Second) // the link-local address of the bridge
	hub.Run(t, "ip", "link", "set", "hub", "type", "bridge", "mcast_querier", "1")
	time.Sleep(1500 * time.Millisecond) // the bridge floods until members could have answered
}
