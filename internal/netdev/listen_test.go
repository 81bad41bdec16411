package netdev

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestListenTentative: listening at an address that was just added waits until duplicate address detection has ended.
// Other addresses that the host does not have are refused at once.
func TestListenTentative(t *testing.T) {
	testenv.Root(t)
	a, b := testenv.NewNamespace(t), testenv.NewNamespace(t)
	a.Run(t, "ip", "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", b.Name)
	b.Run(t, "ip", "link", "set", "vb", "up")
	a.Run(t, "sysctl", "-qw", "net.ipv6.conf.va.disable_ipv6=0", "net.ipv6.conf.va.accept_dad=1", "net.ipv6.conf.all.accept_dad=1", "net.ipv6.conf.va.dad_transmits=1")
	a.Run(t, "ip", "link", "set", "va", "up")
	a.Do(t, func() {
		link, err := netlink.LinkByName("va")
		testenv.Must(t, err)
		at, err := netlink.ParseAddr("fd00::2/64")
		testenv.Must(t, err, netlink.AddrAdd(link, at))
		if !tentative("[fd00::2]:0") {
			t.Error("the address is not tentative: the test shows nothing")
		}
		l, err := Listen(t.Context(), &net.ListenConfig{}, "[fd00::2]:0")
		testenv.Must(t, err)
		testenv.Check(t, l.Close())
		if tentative("[fd00::2]:0") {
			t.Error("the address is still tentative")
		}
		if l, err := Listen(t.Context(), &net.ListenConfig{}, "[fd00::3]:0"); err == nil {
			testenv.Check(t, l.Close())
			t.Error("an address of nobody was taken")
		}
	})
}
