package testenv

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PairOptions says how NewPair joins two namespaces. The zero value means an MTU of 1500, one
// queue, IPv4 addresses and no IPv6.
type PairOptions struct {
	MTU    int  // bytes, 1500 when 0
	Queues int  // receive and transmit queues of each end, 1 when 0
	IPv6   bool // adds addresses; the kernel then also sends its own IPv6 traffic
	// NoAddresses leaves both ends without addresses. The kernel then sends nothing by itself, not
	// even an ARP answer.
	NoAddresses bool
}

// End is one end of a veth pair.
type End struct {
	*Namespace
	Ifname string
	Index  int // interface index, valid in the namespace
	MAC    net.HardwareAddr
	IP     netip.Addr // 10.77.0.1 or .2, in a /24
	IP6    netip.Addr // fd77::1 or ::2, in a /64; on the interface only with PairOptions.IPv6
	card   *card
	port   *End // of the switch, if the end is on one
}

// Pair is two network namespaces joined by a veth pair, or by Cards.
type Pair struct {
	A, B        End
	MTU, Queues int // of both ends
}

// NewPair makes two namespaces with a veth pair between them that is up at both ends. Offloads are
// off, so that one end receives exactly what the other sends: packets are not merged or split,
// checksums are present, and VLAN tags are in the packets. The end of the test removes everything.
// In a test that has called Cards.Instead, NewPair returns those cards.
func NewPair(t testing.TB, o PairOptions) *Pair {
	t.Helper()
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Queues == 0 {
		o.Queues = 1
	}
	if instead != nil && !instead.inUse {
		return instead.Pair(t, o)
	}
	p := &Pair{A: newEnd(t, 'A', 1, o), B: newEnd(t, 'B', 2, o), MTU: o.MTU, Queues: o.Queues}
	p.join(t, o)
	for _, e := range []*End{&p.A, &p.B} {
		e.offloadsOff(t)
		e.up(t, o)
	}
	for _, e := range []*End{&p.A, &p.B} {
		e.awaitCarrier(t)
		if o.IPv6 && !o.NoAddresses {
			e.awaitIPv6(t)
		}
	}
	return p
}

// newEnd makes the namespace of one end and chooses its names.
func newEnd(t testing.TB, letter byte, host byte, o PairOptions) End {
	t.Helper()
	e := End{
		Namespace: NewNamespace(t),
		Ifname:    fmt.Sprintf("u%c%d", letter, counter.Load()),
		MAC:       net.HardwareAddr{2, 0x77, 0, 0, 0, host},
		IP:        netip.AddrFrom4([4]byte{10, 77, 0, host}),
		IP6:       netip.AddrFrom16([16]byte{0xfd, 0x77, 15: host}),
	}
	e.Do(t, func() { quietIPv6(t, o.IPv6) })
	return e
}

// quietIPv6 configures the calling thread's namespace for interfaces made later. They have no IPv6.
// With on they have it, without duplicate address detection and router solicitations.
func quietIPv6(t testing.TB, on bool) {
	t.Helper()
	set := map[string]string{"disable_ipv6": "1"}
	if on {
		set = map[string]string{"accept_dad": "0", "router_solicitations": "0"}
	}
	for name, value := range set {
		file := "/proc/sys/net/ipv6/conf/default/" + name
		if err := os.WriteFile(file, []byte(value), 0); err != nil && !os.IsNotExist(err) {
			t.Fatalf("quiet IPv6: %v", err)
		}
	}
}

// join makes the veth pair with one end in each namespace.
func (p *Pair) join(t testing.TB, o PairOptions) {
	t.Helper()
	h := p.A.handle(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = p.A.Ifname, o.MTU, p.A.MAC
	attrs.NumTxQueues, attrs.NumRxQueues = o.Queues, o.Queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerHardwareAddr = p.B.Ifname, uint32(o.MTU), p.B.MAC
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(o.Queues), uint32(o.Queues)
	veth.PeerNamespace = netlink.NsFd(p.B.fd)
	Mustf(t, h.LinkAdd(veth), "make veth pair %s, %s", p.A.Ifname, p.B.Ifname)
	p.A.Index, p.B.Index = p.A.link(t).Attrs().Index, p.B.link(t).Attrs().Index
	// The kernel removes a namespace asynchronously. Deleting the link here keeps the interfaces
	// from outliving the test.
	t.Cleanup(func() { p.A.Delete(t) })
}

// handle returns a netlink handle in the namespace. It is opened once, because entering a namespace
// is slow.
func (n *Namespace) handle(t testing.TB) *netlink.Handle {
	t.Helper()
	if n.netlink != nil {
		return n.netlink
	}
	h, err := netlink.NewHandleAt(n.fd, unix.NETLINK_ROUTE)
	Mustf(t, err, "open netlink in %s", n.Name)
	n.netlink = h
	return h
}

func (e *End) link(t testing.TB) netlink.Link {
	t.Helper()
	h := e.handle(t)
	link, err := h.LinkByName(e.Ifname)
	Mustf(t, err, "look up %s in %s", e.Ifname, e.Name)
	return link
}

// offloadsOff turns off the offloads that make the kernel deliver packets in a form that no wire carries.
func (e *End) offloadsOff(t testing.TB) {
	t.Helper()
	Tool(t, "ethtool")
	e.Run(t, "ethtool", "-K", e.Ifname, "tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off",
		"txvlan", "off", "rxvlan", "off", "tx-vlan-stag-hw-insert", "off", "rx-vlan-stag-hw-parse", "off")
}

// up gives the end its addresses and sets it and the loopback interface up.
func (e *End) up(t testing.TB, o PairOptions) {
	t.Helper()
	if !o.NoAddresses {
		e.addAddr(t, e.IP, 24)
		if o.IPv6 {
			e.addAddr(t, e.IP6, 64)
		}
	}
	e.setUp(t, "lo")
	e.setUp(t, e.Ifname)
}

func (e *End) addAddr(t testing.TB, ip netip.Addr, bits int) {
	t.Helper()
	h := e.handle(t)
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, ip.BitLen())}}
	Mustf(t, h.AddrAdd(e.link(t), addr), "give %s the address %v", e.Ifname, ip)
}

// awaitIPv6 waits until the IPv6 address is usable. The kernel completes it asynchronously, even
// without duplicate address detection.
func (e *End) awaitIPv6(t testing.TB) {
	t.Helper()
	h := e.handle(t)
	link := e.link(t)
	Wait(t, 5*time.Second, e.Ifname+" to take its IPv6 address", func() bool {
		addrs, err := h.AddrList(link, netlink.FAMILY_V6)
		Mustf(t, err, "list the addresses of %s", e.Ifname)
		for _, a := range addrs {
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				return false
			}
		}
		routes, err := h.RouteGet(e.IP6.AsSlice())
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
	})
}

func (e *End) setUp(t testing.TB, name string) {
	t.Helper()
	h := e.handle(t)
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(link)
	}
	Mustf(t, err, "set %s in %s up", name, e.Name)
}
