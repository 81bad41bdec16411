package labenv

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// around is the table of routes from a card to its fellow, which is asked in front of that of the machine's own addresses.
const (
	around    = 79
	askAround = 10 // preferences of rules
	askLocal  = 20
)

// nobody is the address of no card.
var nobody = net.HardwareAddr{0x02, 0x77, 0, 0, 0xff, 0xff}

// Around has what is sent from the card's address to its fellow's, and back, go over the wire between them, although both are in the namespace of the
// process, where the kernel would keep it to itself. Both are up and have their addresses before. At the end of the test all is as it was.
func (w Wire) Around(t testing.TB) {
	t.Helper()
	for _, way := range w.ways(t) {
		rule := netlink.NewRule()
		rule.Priority, rule.Table, rule.IifName, rule.Dst = askAround, around, "lo", way.to // for what is sent; for what comes, the address is the machine's own
		addRule(t, rule)
		route := &netlink.Route{Table: around, LinkIndex: way.card.Index, Dst: way.to, Src: way.from, Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteAdd(route); err != nil {
			t.Fatalf("route %v by %s: %v", way.to, way.card.Name, err)
		}
		t.Cleanup(func() { _ = netlink.RouteDel(route) })
	}
	local(t)
	w.Mend(t)
}

// Cut has what either end sends reach nobody, as when the wire between them is cut, until Mend. Nobody is told: a card that is set down would tell Soft-RoCE,
// whose queue pair for management stays in its error state when it has something to send then (Linux 7.3), so that the device never connects again.
func (w Wire) Cut(t testing.TB) {
	t.Helper()
	w.lead(t, func(*netlink.LinkAttrs) net.HardwareAddr { return nobody })
}

// Mend is the end of Cut.
func (w Wire) Mend(t testing.TB) {
	t.Helper()
	w.lead(t, func(fellow *netlink.LinkAttrs) net.HardwareAddr { return fellow.HardwareAddr })
}

// lead tells each end where the other is.
func (w Wire) lead(t testing.TB, hardware func(fellow *netlink.LinkAttrs) net.HardwareAddr) {
	t.Helper()
	for _, way := range w.ways(t) {
		n := &netlink.Neigh{LinkIndex: way.card.Index, State: netlink.NUD_PERMANENT, IP: way.to.IP, HardwareAddr: hardware(way.fellow)}
		if err := netlink.NeighSet(n); err != nil {
			t.Fatalf("tell %s where %v is: %v", way.card.Name, way.to.IP, err)
		}
	}
}

// way is from a card to its fellow.
type way struct {
	card, fellow *netlink.LinkAttrs
	from         net.IP
	to           *net.IPNet
}

// ways are those in both directions.
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

// local has the table of the machine's own addresses asked behind others.
func local(t testing.TB) {
	t.Helper()
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
