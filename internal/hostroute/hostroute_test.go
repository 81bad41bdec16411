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
