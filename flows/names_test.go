package flows

import (
	"net/netip"
	"slices"
	"testing"
)

// TestReachable: a listener at every address is reached at those of its device, and one at a host at that one.
func TestReachable(t *testing.T) {
	device := []netip.Addr{netip.MustParseAddr("fe80::1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd77::2"), netip.MustParseAddr("10.0.0.2")}
	for _, c := range []struct {
		listen string
		device []netip.Addr
		want   []string
	}{
		{":7471", device, []string{"10.0.0.2:7471", "[fd77::2]:7471"}},
		{"[::]:7471", device, []string{"10.0.0.2:7471", "[fd77::2]:7471"}},
		{"0.0.0.0:7471", device, []string{"10.0.0.2:7471"}},
		{"10.9.9.9:7471", device, []string{"10.9.9.9:7471"}},
		{"[fd77::9]:7471", nil, []string{"[fd77::9]:7471"}},
		{"localhost:7471", device, nil},
		{"127.0.0.1:7471", device, nil},
		{"[fe80::1%lo]:7471", device, nil},
		{":7471", nil, nil},
		{":7471", device[:1], nil},
		{"10.9.9.9:0", device, nil},
		{"7471", device, nil},
	} {
		got, why := reachable(c.listen, c.device)
		if !slices.Equal(got, c.want) || (why == "") != (c.want != nil) {
			t.Errorf("%s with %v: %q, %q; want %q", c.listen, c.device, got, why, c.want)
		}
	}
}
