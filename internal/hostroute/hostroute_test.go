package hostroute

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func TestDefault(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	check := func(what, name string, want bool) {
		t.Helper()
		p.B.Do(t, func() {
			if got, err := Default(name); got != want || err != nil {
				t.Errorf("%s: %v, %v; want %v", what, got, err, want)
			}
		})
	}
	check("without a default route", p.B.Ifname, false)
	check("an interface that is not there", "nope", false)
	p.B.Run(t, "ip", "route", "add", "default", "via", p.A.IP.String())
	check("with one", p.B.Ifname, true)
	check("another interface", "lo", false)
	p.B.Run(t, "ip", "route", "replace", "default", "nexthop", "via", p.A.IP.String(), "nexthop", "via", p.A.IP.Next().Next().String())
	check("with several next hops", p.B.Ifname, true)
}

// TestDefaultByWayOf: a default route over a bridge or a macvlan counts for the interface below,
// since that receives their packets.
func TestDefaultByWayOf(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	check := func(what string, want bool) {
		t.Helper()
		p.B.Do(t, func() {
			if got, err := Default(p.B.Ifname); got != want || err != nil {
				t.Errorf("%s: %v, %v; want %v", what, got, err, want)
			}
		})
	}
	ip := func(args ...string) { p.B.Run(t, "ip", args...) }
	ip("link", "add", "over0", "link", p.B.Ifname, "type", "macvlan")
	ip("link", "set", "over0", "up")
	check("nothing routed", false)
	ip("route", "add", "default", "dev", "over0")
	check("by a macvlan", true)
	ip("link", "del", "over0")
	check("without it", false)
	ip("link", "add", "bridge0", "type", "bridge")
	ip("link", "set", "bridge0", "up")
	ip("route", "add", "default", "dev", "bridge0")
	check("by a bridge it is no port of", false)
	ip("link", "set", p.B.Ifname, "master", "bridge0")
	check("by a bridge", true)
}
