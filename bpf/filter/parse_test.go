package filter

import (
	"errors"
	"strings"
	"testing"
)

func TestPrintsWhatWasUnderstood(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		"  \t\n":                            "",
		"tcp":                               "tcp",
		"ip proto 6":                        "ip proto 6",
		"proto 6":                           "proto 6",
		`proto \udp`:                        "proto 17",
		"ip proto icmp":                     "ip proto 1",
		"ip6 proto ospf":                    "ip6 proto 89",
		"ip6 protochain tcp":                "ip6 protochain 6",
		"ether proto 0x0806":                "ether proto 0x0806",
		`ether proto \ip6`:                  "ether proto 0x86dd",
		"link proto stp":                    "ether proto 0x0042",
		"host 10.0.0.1":                     "src or dst host 10.0.0.1",
		"src 10.0.0.1":                      "src host 10.0.0.1",
		"dst or src host 10.0.0.1":          "src or dst host 10.0.0.1",
		"src and dst host 10.0.0.1":         "src and dst host 10.0.0.1",
		"ip host 10.0.0.1 or 10.0.0.2":      "ip src or dst host 10.0.0.1 or ip src or dst host 10.0.0.2",
		"ip6 src host 2001:DB8::1":          "ip6 src host 2001:db8::1",
		"host ::ffff:1.2.3.4":               "src or dst host ::ffff:1.2.3.4",
		"host 10.1":                         "src or dst net 10.1.0.0/16",
		"net 10":                            "src or dst net 10.0.0.0/8",
		"net 192.168":                       "src or dst net 192.168.0.0/16",
		"net 192.168/17":                    "src or dst net 192.168.0.0/17",
		"net 10.1.2.3":                      "src or dst host 10.1.2.3",
		"net 10.1.2.3/32":                   "src or dst host 10.1.2.3",
		"net 10.0.0.1 mask 255.0.0.255":     "src or dst net 10.0.0.1 mask 255.0.0.255",
		"dst net 2001:db8::/32":             "dst net 2001:db8::/32",
		"port 80 or 443":                    "src or dst port 80 or src or dst port 443",
		"port (80 or not 443) and host ::1": "(src or dst port 80 or not src or dst port 443) and src or dst host ::1",
		"not port 80 or 443":                "not src or dst port 80 or src or dst port 443",
		"host not 10.0.0.1":                 "not src or dst host 10.0.0.1",
		"tcp port 0x50":                     "tcp src or dst port 80",
		"port https":                        "src or dst port 443",
		"udp dst portrange 6000-6100":       "udp dst portrange 6000-6100",
		"portrange 80":                      "src or dst port 80",
		"tcp or udp and src 1.2.3.4":        "(tcp or udp) and src host 1.2.3.4",
		"tcp or (udp and src 1.2.3.4)":      "tcp or (udp and src host 1.2.3.4)",
		"tcp || udp && !arp":                "(tcp or udp) and not arp",
		"(tcp or udp) or (icmp or arp)":     "tcp or udp or icmp or arp",
		"not (tcp and udp)":                 "not (tcp and udp)",
		"not not tcp":                       "tcp",
		"!(!tcp)":                           "tcp",
		"vlan":                              "vlan",
		"vlan 5 and vlan 6 or vlan 0":       "(vlan 5 and vlan 6) or vlan 0",
		"mpls 5 and geneve or pppoes 0x10":  "(mpls 5 and geneve) or pppoes 16",
		"ether host 02:AB:0:00:00:01":       "ether src or dst host 02:ab:00:00:00:01",
		"wlan src 02ab.0000.0001":           "ether src host 02:ab:00:00:00:01",
		"broadcast":                         "ether broadcast",
		"multicast":                         "ether multicast",
		"ip multicast or ip6 multicast":     "ip multicast or ip6 multicast",
		"less 60":                           "len <= 60",
		"tcp[tcpflags] & tcp-syn != 0":      "(tcp[13] & 2) != 0",
		"ip[2:2]-((ip[0]&0xf)<<2) == 5":     "(ip[2:2] - ((ip[0] & 15) << 2)) = 5",
		"1 + 2 * len > -3 % 4 + 5":          "(1 + (2 * len)) > (-3 % (4 + 5))",
		"llc RNR":                           "llc rnr",
	} {
		e, err := Parse(text)
		if err != nil {
			t.Errorf("Parse(%q): %v", text, err)
			continue
		}
		if got := e.String(); got != want {
			t.Errorf("Parse(%q) prints %q, want %q", text, got, want)
		}
		again, err := Parse(e.String())
		if err != nil || again.String() != e.String() {
			t.Errorf("%q does not parse to itself: %v", e, err)
		}
	}
}

func TestErrorsPointAndSuggest(t *testing.T) {
	for _, c := range []struct {
		text    string
		offset  int
		suggest string
		says    string
	}{
		{"prot 80", 0, "port", "not a test"},
		{"tcp and hots 10.0.0.1", 8, "host", "not a test"},
		{"tcp prot 80", 4, "port", "left over"},
		{"10.0.0.1", 0, "host 10.0.0.1", "no qualifier"},
		{"tcp or 80", 7, "port 80", "no qualifier"},
		{"tcp or 10.0.0.0/8", 7, "net 10.0.0.0/8", "no qualifier"},
		{"tcp or 1-2", 7, "portrange 1-2", "no qualifier"},
		{"host", 4, "", "the end where a value should be"},
		{"host no-such-host.invalid", 5, "", "look up host"},
		{"host 10.0.0.0/8", 5, "net 10.0.0.0/8", "not a value for host"},
		{"host fe80::1%eth0", 12, "", "left over"},
		{"net 10.0.0.1/8", 4, "10.0.0.0/8", "bits set"},
		{"net 10.0.0.1 mask 255.0.0.0", 4, "", "bits set"},
		{"net 10.0.0.0 mask x", 18, "", "no mask"},
		{"net 10.0.0.0/33", 4, "", "not a value for net"},
		{"ip host ::1", 8, "", "not an address of"},
		{"ip6 net 10.0.0.0/8", 8, "", "not an address of"},
		{"host 02:00:00:00:00:01", 5, "", "ether before host"},
		{"port 65536", 5, "", "out of range"},
		{"port 80-90", 5, "portrange 80-90", "not a value for port"},
		{"port nosuchservice", 5, "", "no service this machine knows"},
		{"udp port https or tcp port ntp", 27, "", "is a port of udp, not of tcp"},
		{"portrange 1-70000", 12, "", "out of range"},
		{"ip port 80", 0, "", "does not go with"},
		{"tcp src 80", 0, "", "does not go with"},
		{"src proto 6", 0, "", "direction"},
		{"src multicast", 0, "", "direction"},
		{"ip broadcast", 0, "", "dst host 255.255.255.255"},
		{"tcp broadcast", 0, "", "does not go with"},
		{"proto 256", 6, "", "out of range"},
		{"ether proto 0x10000", 12, "", "out of range"},
		{"ether", 5, "", "expected host"},
		{"vlan 4096", 5, "", "out of range"},
		{"mpls and vlan 5", 9, "", "vlan before mpls"},
		{"mpls and (tcp or arp)", 17, "", "only IPv4 and IPv6"},
		{"pppoes and ether src 02:00:00:00:00:01", 21, "", "before pppoes"},
		{"geneve and ip6 protochain 6", 26, "", "is not possible after geneve"},
		{"ether host 10.0.0.1", 11, "", "MAC address"},
		{"tcp and", 7, "", "the end where a test"},
		{"(tcp", 4, "", `for the "(" at byte 0`},
		{"tcp)", 3, "", "left over"},
		{"tcp udp", 4, "", "left over"},
		{"tcp & udp", 4, "&&", "left over"},
		{"tcp | udp", 4, "||", "left over"},
		{"tcp[13] & 2", 11, "", "a comparison such as"},
		{"tcp[13:3] = 2", 7, "", "1, 2 or 4 bytes"},
		{"tcp[13 = 2", 7, "", `the "]" for the "["`},
		{"tpc[13] = 2", 0, "tcp", "no bytes can be taken"},
		{"host[13] = 2", 0, "", "no bytes can be taken"},
		{"ip[0] / 0 = 2", 6, "", "division by zero"},
		{"ip[0] << 32 = 2", 6, "", "more than 31"},
		{"tcp and inbound", 8, "", "does not say its direction"},
		{"gateway 10.0.0.1", 0, "", "without IPv6 only"},
		{"wlan addr1 02:00:00:00:00:01", 5, "", "802.11"},
		{"tcp ä", 4, "", "unexpected character"},
		{"not", 3, "", "the end"},
	} {
		_, err := Parse(c.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Parse(%q) = %v, want an *Error", c.text, err)
			continue
		}
		if e.Offset() != c.offset || e.suggest != c.suggest || !strings.Contains(e.Error(), c.says) {
			t.Errorf("Parse(%q): offset %d, suggestion %q: %v\nwant offset %d, suggestion %q, %q",
				c.text, e.Offset(), e.suggest, e, c.offset, c.suggest, c.says)
		}
	}
}

func TestRefusesTooMuch(t *testing.T) {
	for name, text := range map[string]string{
		"text":         strings.Repeat(" ", MaxText+1),
		"tests":        "port 1" + strings.Repeat(" or 1", MaxPrimitives),
		"parentheses":  strings.Repeat("(", MaxDepth+2) + "tcp" + strings.Repeat(")", MaxDepth+2),
		"negations":    strings.Repeat("not ", MaxDepth+2) + "tcp",
		"alternations": "tcp" + strings.Repeat(" or tcp and tcp", MaxDepth),
	} {
		if _, err := Parse(text); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", name, err)
		}
	}
}
