package netdev

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestLinkOf: linkOf knows the link types of the supported devices. The error for any other device names it.
func TestLinkOf(t *testing.T) {
	for _, c := range []struct {
		encap, kind string
		link        linktype.Type
		known       bool
		ethernet    string // NeedEthernet's error
		sends       string // Sends' error
	}{
		{"ether", "veth", linktype.Ethernet, true, "", ""},
		{"ether", "device", linktype.Ethernet, true, "", ""},
		{"loopback", "device", linktype.Ethernet, true, "", ""},
		{"ether", "tuntap", linktype.Ethernet, true, "", ""},
		{"none", "tuntap", linktype.RawIP, true, "no Ethernet header", ""},
		{"none", "wireguard", linktype.RawIP, true, "no Ethernet header", "without a protocol"},
		{"ipip", "ipip", linktype.RawIP, true, "no Ethernet header", "without a protocol"},
		{"tunnel6", "ip6tnl", linktype.RawIP, true, "no Ethernet header", "without a protocol"},
		{"unknown519", "rmnet", linktype.RawIP, true, "no Ethernet header", "without a protocol"},
		{"sit", "sit", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
		{"gre", "gre", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
		{"unknown823", "ip6gre", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
		{"ppp", "ppp", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
		{"infiniband", "ipoib", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
		{"ieee802.11/radiotap", "device", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
		{"unknown280", "can", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
		{"unknown824", "nlmon", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
		{"slip", "device", 0, false, "neither an Ethernet nor an IP header", "neither an Ethernet nor an IP header"},
	} {
		d := Of(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "x0", EncapType: c.encap}, LinkType: c.kind})
		if d.Link != c.link || d.Known != c.known {
			t.Errorf("%s: %v, known %v; want %v, %v", c.encap, d.Link, d.Known, c.link, c.known)
		}
		says(t, c.encap+" as Ethernet", d.NeedEthernet("a test"), c.ethernet)
		says(t, c.encap+" to send by", d.Sends(), c.sends)
	}
}

// says compares an error with the expected text; empty means that no error is expected.
func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err == nil:
	case err == nil, want == "", !errors.Is(err, ErrLinkType), !strings.Contains(err.Error(), want), !strings.Contains(err.Error(), "x0 (type "):
		t.Errorf("%s: %v, want it to say %q", what, err, want)
	}
}

// TestFind: Find finds an interface by its name and by alternative names of any length. For a name that does
// not exist it returns ErrNotFound.
func TestFind(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	long := "the-alternative-name-of-an-interface-" + strings.Repeat("n", maxName-37)
	p.A.Run(t, "ip", "link", "property", "add", "dev", p.A.Ifname, "altname", long, "altname", "alt0")
	p.A.Run(t, "ip", "tuntap", "add", "tun9", "mode", "tun")
	p.A.Do(t, func() {
		for _, name := range []string{p.A.Ifname, "alt0", long} {
			if d, err := Find(name); err != nil || d.Name != p.A.Ifname || d.Index != p.A.Index || d.Link != linktype.Ethernet || d.Kind != "veth" {
				t.Errorf("%q: %+v, %v", name, d, err)
			}
		}
		if d, err := Find("tun9"); err != nil || d.Link != linktype.RawIP || d.Kind != "tun" || d.Encap != "none" {
			t.Errorf("tun9: %+v, %v", d, err)
		}
		if _, err := Find("nowhere0"); !errors.Is(err, ErrNotFound) {
			t.Errorf("nowhere0: %v", err)
		}
	})
	for _, name := range []string{long + "n", "a/b", "a b", "a:b", ".", "..", "", "a\nb"} {
		if ValidName(name) == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
	testenv.Check(t, ValidName(long))
}
