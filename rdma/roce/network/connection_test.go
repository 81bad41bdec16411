package network

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestConnection: the route of a connection's packets is the kernel's choice among all interfaces, by whatever its rules
// ask for. One that leads out of another interface is none, and one that comes back is found again.
func TestConnection(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	ipBatch(t, &p.A, `link add second type veth peer name beyond
link set second up
link set beyond up
address add 10.78.0.1/24 dev second
route add 10.99.0.0/24 via 10.77.0.2
route add 10.99.0.0/24 via 10.78.0.2 table 99
neighbour add 10.77.0.2 lladdr 02:00:00:00:00:07 nud permanent dev `+p.A.Ifname)
	from := place(t, i, "10.77.0.1")
	c := Connection{LocalPort: 1000, RemotePort: 4001, Mark: 5, UID: 17, Class: 0x10}
	find := func(c Connection) (Route, error) {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(5*time.Second))
		defer cancel()
		return i.ResolveConnection(ctx, from, gid("10.99.0.9"), c)
	}
	w, err := find(c)
	if err != nil || w.DestinationMAC.String() != "02:00:00:00:00:07" || w.NextHop.String() != "10.77.0.2" || w.MTU != 1500 || w.HopLimit != defaultHopLimit {
		t.Fatalf("%+v, %v", w, err)
	}
	k, err := i.Track(w)
	testenv.Must(t, err)
	defer k.Drop()
	for _, rule := range []string{"fwmark 5", "uidrange 17-17", "tos 0x10", "sport 1000 ipproto tcp", "dport 4001 ipproto tcp"} {
		p.A.Run(t, "sh", "-c", "ip rule add "+rule+" table 99")
		_, err := find(c)
		wantError(t, rule, err, errNoRoute)
		if err != nil && !strings.Contains(err.Error(), "it leads out of second") {
			t.Errorf("%s: %v", rule, err)
		}
		if next(t, i, RouteLost).Tracked != k {
			t.Errorf("%s: another route was lost", rule)
		}
		if _, err := find(Connection{LocalPort: 1, RemotePort: 2, UID: 3}); err != nil {
			t.Errorf("%s, for another connection: %v", rule, err)
		}
		if w, err := i.Resolve(t.Context(), from, gid("10.99.0.9")); err != nil || w.NextHop.String() != "10.77.0.2" {
			t.Errorf("%s, out of this interface: %+v, %v", rule, w, err)
		}
		p.A.Run(t, "sh", "-c", "ip rule del "+rule+" table 99")
		next(t, i, RouteChanged)
	}
	bound := c
	bound.Bound = i.Index()
	p.A.Run(t, "sh", "-c", "ip route add 10.99.0.9 via 10.78.0.2; ip route change 10.99.0.0/24 via 10.77.0.2 mtu 1300 hoplimit 9")
	_, err = find(c)
	wantError(t, "a closer route", err, errNoRoute)
	if w, err := find(bound); err != nil || w.MTU != 1300 || w.HopLimit != 9 {
		t.Errorf("bound to this interface: %+v, %v", w, err)
	}
	p.A.Run(t, "ip", "route", "add", "blackhole", "10.99.0.8")
	_, err = i.ResolveConnection(t.Context(), from, gid("10.99.0.8"), c)
	wantError(t, "a blackhole", err, errNoRoute)
	_, err = i.ResolveConnection(t.Context(), from, gid("192.0.2.1"), c)
	wantError(t, "no route", err, errNoRoute)
	w, err = i.ResolveConnection(t.Context(), from, gid("10.77.0.1"), c)
	if err != nil || !w.Local {
		t.Errorf("to itself: %+v, %v", w, err)
	}
}
