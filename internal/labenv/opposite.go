package labenv

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Wire describes a card that stays in the namespace of the process, its address (Here) and the
// address of its fellow at the other end (There). Both addresses have no prefix length and share a
// /24 network.
type Wire struct{ Card, Here, There string }

// Opposite moves the fellows of cards into one namespace, from which tests send packets to the
// cards. It waits until all wires have a link. Cards and fellows are up and have permanent
// neighbour entries, so neither sends ARP requests. The end of the test moves the fellows back.
func Opposite(t testing.TB, all ...Wire) *testenv.Namespace {
	t.Helper()
	ns := testenv.NewNamespace(t)
	for _, w := range all {
		w.part(t, ns)
	}
	for _, w := range all {
		w.Await(t, ns)
	}
	return ns
}

// CutFrom is Cut for a wire whose fellow is in a namespace of Opposite. mend undoes it.
func (w Wire) CutFrom(t testing.TB, ns *testenv.Namespace) (mend func()) {
	t.Helper()
	here, err := netlink.LinkByName(w.Card)
	testenv.Mustf(t, err, "look for %s", w.Card)
	neighbours, err := netlink.NeighList(here.Attrs().Index, netlink.FAMILY_V4)
	i := slices.IndexFunc(neighbours, func(n netlink.Neigh) bool { return n.IP.Equal(net.ParseIP(w.There)) })
	if i < 0 {
		t.Fatalf("%s has no neighbour %s: %v", w.Card, w.There, err)
	}
	lead := func(there, here net.HardwareAddr) {
		t.Helper()
		ip(t, nil, "neigh", "replace", w.There, "lladdr", there.String(), "dev", w.Card)
		ip(t, ns, "neigh", "replace", w.Here, "lladdr", here.String(), "dev", wires[w.Card])
	}
	lead(nobody, nobody)
	return func() { t.Helper(); lead(neighbours[i].HardwareAddr, here.Attrs().HardwareAddr) }
}

// part moves the fellow to the namespace and sets both ends up.
func (w Wire) part(t testing.TB, ns *testenv.Namespace) {
	t.Helper()
	here, other := setUpHere(t, w.Card), wires[w.Card]
	there := setUpHere(t, other)
	ip(t, nil, "link", "set", other, "netns", ns.Name)
	// The end of the namespace returns the fellow too, but only once nothing holds the namespace.
	t.Cleanup(func() { ip(t, ns, "link", "set", other, "netns", strconv.Itoa(os.Getpid())) })
	ip(t, ns, "link", "set", other, "up")
	ip(t, ns, "addr", "add", w.There+"/24", "dev", other)
	ip(t, ns, "neigh", "replace", w.Here, "lladdr", here.Attrs().HardwareAddr.String(), "dev", other)
	if !hasAddress(t, here, w.Here) {
		addAddress(t, here, w.Here+"/24")
	}
	ip(t, nil, "neigh", "replace", w.There, "lladdr", there.Attrs().HardwareAddr.String(), "dev", w.Card)
}

// Await waits until both ends have a stable link: a card loses its link for a moment when it gets a
// program. ns is where the other end is: the namespace of Opposite, or nil for that of the process.
func (w Wire) Await(t testing.TB, ns *testenv.Namespace) {
	t.Helper()
	w.settled(t, func() bool { return strings.Contains(ip(t, ns, "link", "show", wires[w.Card]), "state UP") })
}

// settled waits until the card has had a link, and the other end too, for longer than igbSettles.
func (w Wire) settled(t testing.TB, other func() bool) {
	t.Helper()
	since := time.Now()
	testenv.Wait(t, 20*time.Second, w.Card+" to have a link", func() bool {
		link, err := netlink.LinkByName(w.Card)
		if err != nil || link.Attrs().OperState != netlink.OperUp || !other() {
			since = time.Now()
		}
		return time.Since(since) > igbSettles
	})
}

func hasAddress(t testing.TB, link netlink.Link, address string) bool {
	t.Helper()
	all, err := netlink.AddrList(link, netlink.FAMILY_V4)
	testenv.Mustf(t, err, "list the addresses of %s", link.Attrs().Name)
	for _, a := range all {
		if a.IP.Equal(net.ParseIP(address)) {
			return true
		}
	}
	return false
}

// ip runs ip(8) in a namespace. nil means the namespace of the process.
func ip(t testing.TB, ns *testenv.Namespace, args ...string) string {
	t.Helper()
	if ns != nil {
		return ns.Run(t, "ip", args...)
	}
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %q: %v\n%s", args, err, out)
	}
	return string(out)
}
