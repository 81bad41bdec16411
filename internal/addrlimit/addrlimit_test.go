package addrlimit

import (
	"net/netip"
	"slices"
	"testing"
)

// TestFull: Full names the limit that one more thing would exceed, of the network or in all, and
// the things to remove.
func TestFull(t *testing.T) {
	s := New[int](5, 3)
	a, b, c := Host(netip.MustParseAddr("10.0.0.1")), Host(netip.MustParseAddr("10.0.0.2")), Host(netip.MustParseAddr("10.0.0.3"))
	want := func(from netip.Prefix, limit Limit, rivals ...int) {
		t.Helper()
		if l, r := s.Full(from); l != limit || !slices.Equal(r, rivals) {
			t.Errorf("%v: limit %d, %v; want %d, %v", from, l, r, limit, rivals)
		}
	}
	for i, from := range []netip.Prefix{b, a, a, a} {
		want(from, None)
		s.Add(i, from)
	}
	want(a, Network, 1, 2, 3)
	want(c, None)
	s.Add(4, c)
	want(b, All, 1, 2, 3)
	if !s.Remove(1) || s.Remove(1) || s.Len() != 4 || s.From(a) != 2 {
		t.Errorf("%d things, %d of %v", s.Len(), s.From(a), a)
	}
	s.Add(5, b)
	want(c, All, 0, 5)
	for i := range 6 {
		s.Remove(i)
	}
	if len(s.from) != 0 {
		t.Errorf("left: %v", s.from)
	}
}

// TestNetworks: Host and Link map an address to the network that it counts for.
func TestNetworks(t *testing.T) {
	for from, want := range map[string][2]string{
		"10.0.0.1":        {"10.0.0.1/32", "10.0.0.0/24"},
		"::ffff:10.0.0.1": {"10.0.0.1/32", "10.0.0.0/24"},
		"2001:db8::1":     {"2001:db8::/64", "2001:db8::/64"},
		"fe80::1:2%eth0":  {"fe80::1:2/128", "fe80::/64"},
	} {
		if h, l := Host(netip.MustParseAddr(from)), Link(netip.MustParseAddr(from)); h.String() != want[0] || l.String() != want[1] {
			t.Errorf("%s is %v and %v, want %v", from, h, l, want)
		}
	}
	if Host(netip.Addr{}).IsValid() {
		t.Error("no address is a host")
	}
}

// TestBusiest: Busiest returns the things of the network that has the most.
func TestBusiest(t *testing.T) {
	s := New[int](5, 3)
	if got := s.Busiest(); len(got) != 0 || s.Has(1) {
		t.Errorf("of none: %v", got)
	}
	for i, from := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.2"} {
		s.Add(i, Host(netip.MustParseAddr(from)))
	}
	if got := s.Busiest(); !slices.Equal(got, []int{1, 2}) || !s.Has(2) || s.Has(3) {
		t.Errorf("%v, not those of the network with two", got)
	}
}
