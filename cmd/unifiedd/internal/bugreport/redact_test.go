package bugreport

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestRedact: an address is replaced by the same number in each of its forms. What is no address stays.
func TestRedact(t *testing.T) {
	r := newRedactor("buildhost")
	for _, c := range []struct{ text, want string }{
		{"listen 10.1.2.3:7471, peer [2001:db8::1]:80.", "listen ip4-1:7471, peer [ip6-1]:80."},
		{"net 10.1.2.3/24 and 10.1.2.4.", "net ip4-1/24 and ip4-2."},
		{"gid ::ffff:10.1.2.3, 0000:0000:0000:0000:0000:ffff:0a01:0203", "gid ip4-1, ip4-1"},
		{"gid 00000000000000000000ffff0a010203", "gid ip4-1"},
		{"2001:0DB8:0:0:0:0:0:1, fe80::5054:ff:fe12:3456%eth0", "ip6-1, ip6-2%eth0"},
		{"fe80:0000:0000:0000:5054:00ff:fe12:3456", "ip6-2"},
		{"0xfe80000000000000505400fffe123456", "ip6-2"},
		{"link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff", "link/ether mac-1 brd ff:ff:ff:ff:ff:ff"},
		{"MAC 52-54-00-12-34-56, enx525400123456p1", "MAC mac-1, enxmac-1p1"},
		{"source:52:54:00:12:34:56, face:52:54:00:12:34:56", "source:mac-1, face:mac-1"},
		{"node:2001:db8::1 roce:10.1.2.3 2001:db8::1: down", "node:ip6-1 roce:ip4-1 ip6-1: down"},
		{"node_guid 5054:00ff:fe12:3456, 505400fffe123456", "node_guid guid-1, guid-1"},
		{"udp and dst net 224.0.0.0/4, ff02::1", "udp and dst net multicast-2/4, multicast-1"},
		{"00:00:10:49:fe:80:00:00:00:00:00:00:00:02:c9:03:00:01:02:03", "mac-2"},
		{"BuildHost kernel: on buildhost", "host-1 kernel: on host-1"},
		{"http://10.1.2.3/x user@10.1.2.4 a=10.1.2.3;b", "http://ip4-1/x user@ip4-2 a=ip4-1;b"},
	} {
		if got := string(r.redact([]byte(c.text))); got != c.want {
			t.Errorf("%q\nbecomes %q\nwant    %q", c.text, got, c.want)
		}
	}
	for _, same := range []string{"127.0.0.1 ::1 0.0.0.0 :: 255.255.255.0", "at 2026-11-26T18:32:43.123Z, 18:32:43", "pci 0000:00:03.0, version v1.2.3.4, 1.2.3.4.5",
		"foo::bar std::string", "00:00:00:00:00:00", "sha256:ab12", "key: value", "Linux 6.18.0-1", "a: b:c ::", "1.2.3.4567"} {
		if got := string(r.redact([]byte(same))); got != same {
			t.Errorf("%q becomes %q", same, got)
		}
	}
}

// TestRedactAny: no address is left, whatever is around it.
func TestRedactAny(t *testing.T) {
	around := []string{" ", "[", "]", "(", ")", "=", ",", "\"", "/", "\n", "@", "%", ";", "<", ">", "'"}
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes")
		b[0] = 3 + b[0]%120 // no loopback address, and no mask: they stay
		six := netip.AddrFrom16([16]byte(b))
		address := rapid.SampledFrom([]string{six.String(), six.StringExpanded(), strings.ToUpper(six.StringExpanded()), netip.AddrFrom4([4]byte(b[:4])).String(), net.HardwareAddr(b[:6]).String()}).Draw(t, "address")
		before, after := rapid.SampledFrom(around).Draw(t, "before"), rapid.SampledFrom(around).Draw(t, "after")
		text := fmt.Sprintf("word%s%s%sword", before, address, after)
		if got := string(newRedactor("").redact([]byte(text))); strings.Contains(got, address) {
			t.Fatalf("%q becomes %q", text, got)
		}
	})
}
