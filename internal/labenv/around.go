package labenv

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// around is the routing table with the routes between a card and its fellow. The kernel looks it up
// before the local table.
const (
	around    = 79
	askAround = 10 // preferences of rules
	askLocal  = 20
)

// nobody is a MAC address that no card has.
var nobody = net.HardwareAddr{0x02, 0x77, 0, 0, 0xff, 0xff}

// Around makes packets between the card's address and its fellow's go over the wire. Without it the
// kernel delivers them internally, because both addresses are in the namespace of the process. Both
// cards must be up and have their addresses. The end of the test restores the routing rules.
//
// Packets from a card to its own address then leave the host, too: those of TCP by its fellow, and arrive. Those
// of Soft-RoCE leave by the card itself, and do not. So two programs must not connect to each other over one card.
func (w Wire) Around(t testing.TB) {
	t.Helper()
	for _, way := range w.ways(t) {
		rule := netlink.NewRule()
		rule.Priority, rule.Table, rule.IifName, rule.Dst = askAround, around, "lo", way.to // outgoing packets only; on receive the kernel must treat the address as local
		addRule(t, rule)
		route := &netlink.Route{Table: around, LinkIndex: way.card.Index, Dst: way.to, Src: way.from, Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteAdd(route); err != nil {
			t.Fatalf("route %v by %s: %v", way.to, way.card.Name, err)
		}
		t.Cleanup(func() { _ = netlink.RouteDel(route) })
		nowhere := &netlink.Route{Table: around, Dst: way.to, Type: unix.RTN_UNREACHABLE, Priority: 1 << 20} // while the card is down, it must not be the local table's
		if err := netlink.RouteAdd(nowhere); err != nil {
			t.Fatalf("make %v unreachable without %s: %v", way.to, way.card.Name, err)
		}
		t.Cleanup(func() { _ = netlink.RouteDel(nowhere) })
	}
	local(t)
	w.Mend(t)
}

// Cut makes the packets of both ends reach no card, like a cut wire, until Mend. Soft-RoCE does not
// notice it. Setting the card down instead would notify Soft-RoCE. If Soft-RoCE then has something
// to send, its queue pair for management stays in the error state (Linux 7.3), and the device never
// connects again.
func (w Wire) Cut(t testing.TB) {
	t.Helper()
	w.lead(t, func(*netlink.LinkAttrs) net.HardwareAddr { return nobody })
}

// Mend undoes Cut.
func (w Wire) Mend(t testing.TB) {
	t.Helper()
	w.lead(t, func(fellow *netlink.LinkAttrs) net.HardwareAddr { return fellow.HardwareAddr })
}

// SetDown sets the card down, as an administrator does, until up is called. The kernel then forgets the
// card's permanent neighbours, and its routes of Around. up adds them again, and waits until the card's
// link is stable.
func (w Wire) SetDown(t testing.TB) (up func()) {
	t.Helper()
	link, err := netlink.LinkByName(w.Card)
	if err != nil {
		t.Fatalf("look for %s: %v", w.Card, err)
	}
	index := link.Attrs().Index
	neighbours, err := netlink.NeighList(index, netlink.FAMILY_V4)
	if err != nil {
		t.Fatalf("list the neighbours of %s: %v", w.Card, err)
	}
	neighbours = slices.DeleteFunc(neighbours, func(n netlink.Neigh) bool { return n.State&netlink.NUD_PERMANENT == 0 })
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: around, LinkIndex: index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	if err != nil {
		t.Fatalf("list the routes of %s: %v", w.Card, err)
	}
	SetLink(t, w.Card, false)
	return func() {
		t.Helper()
		SetLink(t, w.Card, true)
		for _, r := range routes {
			if err := netlink.RouteReplace(&r); err != nil {
				t.Fatalf("add the route %v again: %v", r, err)
			}
		}
		for _, n := range neighbours {
			if err := netlink.NeighSet(&n); err != nil {
				t.Fatalf("add the neighbour %v again: %v", n, err)
			}
		}
		w.settled(t, func() bool { return true })
	}
}

// lead sets, at each end, the MAC address that packets to the other end go to.
func (w Wire) lead(t testing.TB, hardware func(fellow *netlink.LinkAttrs) net.HardwareAddr) {
	t.Helper()
	for _, way := range w.ways(t) {
		n := &netlink.Neigh{LinkIndex: way.card.Index, State: netlink.NUD_PERMANENT, IP: way.to.IP, HardwareAddr: hardware(way.fellow)}
		if err := netlink.NeighSet(n); err != nil {
			t.Fatalf("tell %s where %v is: %v", way.card.Name, way.to.IP, err)
		}
	}
}

// way is one direction: from a card to its fellow.
type way struct {
	card, fellow *netlink.LinkAttrs
	from         net.IP
	to           *net.IPNet
}

// ways returns both directions.
func (w Wire) ways(t testing.TB) [2]way {
	t.Helper()
	var ends [2]*netlink.LinkAttrs
	for i, card := range []string{w.Card, wires[w.Card]} {
		link, err := netlink.LinkByName(card)
		if err != nil {
			t.Fatalf("look for %s: %v", card, err)
		}
		ends[i] = link.Attrs()
	}
	host := func(address string) *net.IPNet {
		return &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(32, 32)}
	}
	return [2]way{{ends[0], ends[1], net.ParseIP(w.Here), host(w.There)}, {ends[1], ends[0], net.ParseIP(w.There), host(w.Here)}}
}

// local moves the lookup of the local table behind the rules of Around, unless another wire has done
// it.
func local(t testing.TB) {
	t.Helper()
	rules, err := netlink.RuleList(unix.AF_INET)
	if err != nil {
		t.Fatalf("list the routing rules: %v", err)
	}
	// netlink has -1 for the priority 0, which the kernel does not report
	if !slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Priority <= 0 && r.Table == unix.RT_TABLE_LOCAL }) {
		return
	}
	rule := func(preference int) *netlink.Rule {
		r := netlink.NewRule()
		r.Priority, r.Table = preference, unix.RT_TABLE_LOCAL
		return r
	}
	addRule(t, rule(askLocal))
	if err := netlink.RuleDel(rule(0)); err != nil {
		t.Fatalf("take the rule for own addresses from its place: %v", err)
	}
	t.Cleanup(func() {
		if err := netlink.RuleAdd(rule(0)); err != nil {
			t.Errorf("put the rule for own addresses back: %v", err)
		}
	})
}

func addRule(t testing.TB, rule *netlink.Rule) {
	t.Helper()
	if err := netlink.RuleAdd(rule); err != nil {
		t.Fatalf("add the rule %v: %v", rule, err)
	}
	t.Cleanup(func() {
		if err := netlink.RuleDel(rule); err != nil {
			t.Errorf("remove the rule %v: %v", rule, err)
		}
	})
}
