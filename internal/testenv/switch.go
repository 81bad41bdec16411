package testenv

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// NewSwitch makes n namespaces, each with one end of a veth pair. The other ends are ports of a bridge
// in a namespace of its own. MTU and offloads are as those of NewPair. The end of the test removes
// everything.
func NewSwitch(t testing.TB, n int, o PairOptions) []*End {
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
	if err := hub.handle(t).LinkAdd(bridge); err != nil {
		t.Fatalf("make a bridge: %v", err)
	}
	t.Cleanup(func() { _ = hub.handle(t).LinkDel(bridge) })
	(&End{Namespace: hub}).setUp(t, "hub")
	var all []*End
	for i := range n {
		e := newEnd(t, 'S', byte(i+1), o)
		port := End{Namespace: hub, Ifname: fmt.Sprintf("p%d", i+1), MAC: append(e.MAC[:0:0], e.MAC...)}
		port.MAC[1], port.MAC[4] = 0x78, 1
		p := &Pair{A: e, B: port, MTU: o.MTU, Queues: 1}
		p.join(t, o)
		if err := hub.handle(t).LinkSetMaster(port.link(t), bridge); err != nil {
			t.Fatalf("add a port to the bridge: %v", err)
		}
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
