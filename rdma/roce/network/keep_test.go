package network

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// kept tracks a route until the end of the test.
func kept(t *testing.T, i *Interface, from, to string) *TrackedRoute {
	t.Helper()
	k, err := i.Track(resolve(t, i, from, to))
	testenv.Must(t, err)
	return k
}

// now returns a tracked route, which must not be lost.
func now(t *testing.T, k *TrackedRoute) Route {
	t.Helper()
	w, err := k.Route()
	testenv.Checkf(t, err, "the way to %v", w.Destination)
	return w
}

// hasty shortens the kernel's timeouts for neighbours.
func hasty(t *testing.T, e *testenv.End) {
	t.Helper()
	e.Do(t, func() {
		for _, family := range []string{"ipv4", "ipv6"} {
			for name, value := range map[string]string{"retrans_time_ms": "10", "base_reachable_time_ms": "50", "delay_first_probe_time": "0"} {
				testenv.Must(t, os.WriteFile("/proc/sys/net/"+family+"/neigh/"+e.Ifname+"/"+name, []byte(value), 0))
			}
		}
	})
}

// TestKeptNeighbour: a tracked route is lost when its peer stops answering, and returns with the
// peer's new MAC.
func TestKeptNeighbour(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	hasty(t, &p.A)
	for from, to := range map[string]string{"10.77.0.1": "10.77.0.2", "fd77::1": "fd77::2"} {
		i := openIn(t, p.A.Namespace, p.A.Ifname)
		k := kept(t, i, from, to)
		if now(t, k).DestinationMAC != MAC(p.B.MAC) {
			t.Errorf("%+v", now(t, k))
		}
		nothing(t, i)
		mac := MAC(p.B.MAC)
		mac[4]++
		p.B.Run(t, "ip", "link", "set", p.B.Ifname, "arp", "off") // hides the new MAC
		p.B.Run(t, "ip", "link", "set", p.B.Ifname, "address", mac.String())
		if c := next(t, i, RouteLost); c.Tracked != k {
			t.Errorf("%+v", c)
		}
		_, err := k.Route()
		wantError(t, to, err, errUnanswered)
		p.B.Run(t, "ip", "link", "set", p.B.Ifname, "arp", "on")
		if c := next(t, i, RouteChanged); c.Tracked != k || now(t, k).DestinationMAC != mac {
			t.Errorf("%+v: %+v, want MAC %v", c, now(t, k), mac)
		}
		k.Drop()
		k.Drop()
		p.B.Run(t, "ip", "link", "set", p.B.Ifname, "address", p.B.MAC.String())
		time.Sleep(5 * refresh)
		nothing(t, i)
		i.Close()
	}
}

// TestKeptEntry: if the kernel deletes the neighbour's entry, the Interface makes the kernel
// resolve it again. A permanent entry stays permanent.
func TestKeptEntry(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	k := kept(t, i, "10.77.0.1", "10.77.0.2")
	entry := func() string { return p.A.Run(t, "ip", "-o", "neighbour", "show", "10.77.0.2") }
	p.A.Run(t, "ip", "neighbour", "del", "10.77.0.2", "dev", p.A.Ifname)
	testenv.Wait(t, 5*time.Second, "the kernel to have it again", func() bool { return len(entry()) > 0 })
	now(t, k)
	other := "02:00:00:00:00:07"
	p.A.Run(t, "ip", "neighbour", "replace", "10.77.0.2", "lladdr", other, "nud", "permanent", "dev", p.A.Ifname)
	next(t, i, RouteChanged)
	if now(t, k).DestinationMAC.String() != other {
		t.Errorf("%+v, want MAC %s", now(t, k), other)
	}
	looks := i.Counters().Looks
	testenv.Wait(t, 5*time.Second, "the neighbour to be looked at", func() bool { return i.Counters().Looks > looks+1 })
	if w := resolve(t, i, "10.77.0.1", "10.77.0.2"); w != now(t, k) {
		t.Errorf("resolved %+v, kept %+v", w, now(t, k))
	}
	if e := entry(); !strings.Contains(e, "PERMANENT") {
		t.Errorf("the entry is no longer permanent: %s", e)
	}
	if c := i.Counters(); c.Failures != 0 || c.Overruns != 0 {
		t.Errorf("%+v", c)
	}
}

// TestKeptRoute: a tracked route follows the kernel's routes from one gateway to another. It is
// lost without a route, and when its source address is removed.
func TestKeptRoute(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	route := func(args ...string) {
		t.Helper()
		p.A.Run(t, "ip", append([]string{"route"}, args...)...)
	}
	p.A.Run(t, "ip", "neighbour", "add", "10.77.0.3", "lladdr", "02:00:00:00:00:03", "dev", p.A.Ifname)
	route("add", "10.90.0.0/16", "via", "10.77.0.2", "mtu", "1300", "hoplimit", "9")
	route("add", "fd90::/16", "via", "fe80::77:ff:fe00:2", "dev", p.A.Ifname)
	route("add", "10.91.0.0/16", "via", "inet6", "fd77::2")
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	for to, gateway := range map[string]string{"fd90::5": "fe80::77:ff:fe00:2", "10.91.0.1": "fd77::2"} {
		from := "10.77.0.1"
		if !gid(to).Is4() {
			from = "fd77::1"
		}
		if w := resolve(t, i, from, to); w.NextHop != gid(gateway).Addr() || w.DestinationMAC != MAC(p.B.MAC) {
			t.Errorf("%+v, want gateway %s", w, gateway)
		}
	}
	k := kept(t, i, "10.77.0.1", "10.90.1.1")
	if w := now(t, k); w.NextHop != gid("10.77.0.2").Addr() || w.DestinationMAC != MAC(p.B.MAC) || w.MTU != 1300 || w.HopLimit != 9 {
		t.Errorf("%+v", w)
	}
	route("replace", "10.90.0.0/16", "via", "10.77.0.3")
	next(t, i, RouteChanged)
	if w := now(t, k); w.NextHop != gid("10.77.0.3").Addr() || w.DestinationMAC[5] != 3 || w.MTU != 1500 || w.HopLimit != 64 {
		t.Errorf("%+v", w)
	}
	route("del", "10.90.0.0/16")
	next(t, i, RouteLost)
	_, err := k.Route()
	wantError(t, "without a route", err, errNoRoute)
	route("add", "default", "via", "10.77.0.2")
	next(t, i, RouteChanged)
	if w := now(t, k); w.DestinationMAC != MAC(p.B.MAC) {
		t.Errorf("%+v", w)
	}
	p.A.Run(t, "ip", "address", "add", "10.77.0.8/32", "dev", p.A.Ifname)
	next(t, i, GIDAdded)
	p.A.Run(t, "ip", "address", "del", "10.77.0.1/24", "dev", p.A.Ifname)
	// The kernel tells of the address and of the route by different groups, so either may come first.
	first := await(t, i, "the address and the route to go").What
	other := RouteLost
	if first == RouteLost {
		other = GIDRemoved
	} else if first != GIDRemoved {
		t.Fatalf("%v, want one of %v and %v", first, GIDRemoved, RouteLost)
	}
	next(t, i, other)
	testenv.Wait(t, 5*time.Second, "the route to be without its source", func() bool { _, err := k.Route(); return errors.Is(err, errSource) })
}

// TestKeptOwn: routes to a group and to the interface itself need no neighbour, and follow its MTU
// and MAC.
func TestKeptOwn(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	group, own := kept(t, i, "fd77::1", "ff05::1:2"), kept(t, i, "10.77.0.1", "10.77.0.1")
	if w := now(t, group); w.DestinationMAC.String() != "33:33:00:01:00:02" || w.Local || w.MTU != 1500 {
		t.Errorf("%+v", w)
	}
	if w := now(t, own); !w.Local || w.DestinationMAC != w.SourceMAC || w.NextHop.IsValid() {
		t.Errorf("%+v", w)
	}
	if w := resolve(t, i, "10.77.0.1", "239.129.2.3"); w.DestinationMAC.String() != "01:00:5e:01:02:03" {
		t.Errorf("%+v", w)
	}
	p.A.Run(t, "ip", "link", "set", p.A.Ifname, "mtu", "4200", "address", "02:77:00:00:00:11")
	next(t, i, LinkChanged)
	for range 2 {
		testenv.Wait(t, 5*time.Second, "both ways to change", func() bool { c, ok := i.Next(); return ok && c.What != 0 })
	}
	if g, o := now(t, group), now(t, own); g.MTU != 4200 || o.MTU != 4200 || g.SourceMAC[5] != 0x11 || o.DestinationMAC[5] != 0x11 {
		t.Errorf("%+v, %+v", g, o)
	}
}

// TestManyWays: Next reports each of hundreds of routes that change at once, and reports each once.
func TestManyWays(t *testing.T) {
	testenv.Leaks(t)
	const ways = 300
	p := testenv.NewPair(t, testenv.PairOptions{})
	peers := func(mac string) {
		var batch strings.Builder
		for n := range ways {
			fmt.Fprintf(&batch, "neighbour replace 10.77.0.%d lladdr %s nud permanent dev %s\n", 3+n%250, mac, p.A.Ifname)
		}
		ipBatch(t, &p.A, batch.String())
	}
	peers("02:00:00:00:00:01")
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	from := place(t, i, "10.77.0.1")
	var all [ways]*TrackedRoute
	var group sync.WaitGroup
	for n := range all {
		group.Go(func() {
			w, err := i.Resolve(t.Context(), from, gid(fmt.Sprintf("10.77.0.%d", 3+n%250)))
			if err == nil {
				all[n], err = i.Track(w)
			}
			testenv.Check(t, err)
		})
	}
	group.Wait()
	nothing(t, i)
	peers("02:00:00:00:00:02")
	told := map[*TrackedRoute]int{}
	for range all {
		told[next(t, i, RouteChanged).Tracked]++
	}
	for _, k := range all {
		if told[k] != 1 || now(t, k).DestinationMAC[5] != 2 {
			t.Errorf("told %d times: %+v", told[k], now(t, k))
		}
	}
	for _, k := range all {
		k.Drop()
	}
	p.A.Run(t, "ip", "neighbour", "flush", "nud", "permanent", "dev", p.A.Ifname)
	time.Sleep(2 * refresh)
	nothing(t, i)
	t.Logf("%+v", i.Counters())
}
