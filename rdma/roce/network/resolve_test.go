package network

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestResolveNeighbours: Resolve finds peers on the link over IPv4 and both kinds of IPv6
// addresses, first by asking and then from the neighbour table.
func TestResolveNeighbours(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	for _, c := range [][2]string{{"10.77.0.1", "10.77.0.2"}, {"fd77::1", "fd77::2"}, {"fe80::77:ff:fe00:1", "fe80::77:ff:fe00:2"}} {
		for range 2 {
			w := resolve(t, i, c[0], c[1])
			want := Route{
				Place: place(t, i, c[0]), Source: gid(c[0]), Destination: gid(c[1]), SourceMAC: MAC(p.A.MAC), DestinationMAC: MAC(p.B.MAC),
				MTU: 1500, HopLimit: 64, NextHop: gid(c[1]).Addr(), link: p.A.Index,
			}
			if w != want {
				t.Errorf("%s to %s: %+v, want %+v", c[0], c[1], w, want)
			}
		}
	}
}
