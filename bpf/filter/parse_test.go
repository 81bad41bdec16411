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
		"proto 6":                           "tcp",
		`proto \udp`:                        "udp",
		"ip proto icmp":                     "icmp",
		"proto icmp":                        "proto 1",
		"ip6 proto 58":                      "icmp6",
		"ether proto 0x0806":                "arp",
		"ether proto ip6":                   "ip6",
		"ether proto 0x88CC":                "ether proto 0x88cc",
		"host 10.0.0.1":                     "host 10.0.0.1",
		"src 10.0.0.1":                      "src host 10.0.0.1",
		"src or dst host 10.0.0.1":          "host 10.0.0.1",
		"src and dst host 10.0.0.1":         "src host 10.0.0.1 and dst host 10.0.0.1",
		"ip host 10.0.0.1 or 10.0.0.2":      "(ip and host 10.0.0.1) or (ip and host 10.0.0.2)",
		"ip6 src host 2001:DB8::1":          "ip6 and src host 2001:db8::1",
		"host ::ffff:1.2.3.4":               "host ::ffff:1.2.3.4",
		"net 10":                            "net 10.0.0.0/8",
		"net 192.168":                       "net 192.168.0.0/16",
		"net 192.168/17":                    "net 192.168.0.0/17",
		"net 10.1.2.3":                      "host 10.1.2.3",
		"net 10.1.2.3/32":                   "host 10.1.2.3",
		"net 0.0.0.0/0":                     "net 0.0.0.0/0",
		"dst net 2001:db8::/32":             "dst net 2001:db8::/32",
		"port 80 or 443":                    "port 80 or port 443",
		"port (80 or 443)":                  "port 80 or port 443",
		"port (80 or not 443) and host ::1": "(port 80 or not port 443) and host ::1",
		"not port 80 or 443":                "not port 80 or port 443",
		"host not 10.0.0.1":                 "not host 10.0.0.1",
		"tcp port 0x50":                     "tcp port 80",
		"udp dst portrange 6000-6100":       "udp dst portrange 6000-6100",
		"portrange 80":                      "port 80",
		"tcp or udp and host 1.2.3.4":       "(tcp or udp) and host 1.2.3.4",
		"tcp or (udp and host 1.2.3.4)":     "tcp or (udp and host 1.2.3.4)",
		"tcp || udp && !arp":                "(tcp or udp) and not arp",
		"(tcp or udp) or (icmp or arp)":     "tcp or udp or icmp or arp",
		"not (tcp and udp)":                 "not (tcp and udp)",
		"not not tcp":                       "tcp",
		"!(!tcp)":                           "tcp",
		"vlan":                              "vlan",
		"vlan 5 and vlan 6 or vlan 0":       "(vlan 5 and vlan 6) or vlan 0",
		"vlan and tcp":                      "vlan and tcp",
		"ether host 02:AB:00:00:00:01":      "ether host 02:ab:00:00:00:01",
		"broadcast":                         "ether dst host ff:ff:ff:ff:ff:ff",
		"ether broadcast":                   "ether dst host ff:ff:ff:ff:ff:ff",
		"multicast":                         "ether multicast",
		"ip multicast or ip6 multicast":     "ip multicast or ip6 multicast",
		"arp host 10.0.0.1":                 "arp and host 10.0.0.1",
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
		{"10.0.0.1", 0, "host 10.0.0.1", "nothing in front"},
		{"tcp or 80", 7, "port 80", "nothing in front"},
		{"tcp or 10.0.0.0/8", 7, "net 10.0.0.0/8", "nothing in front"},
		{"tcp or 1-2", 7, "portrange 1-2", "nothing in front"},
		{"host", 4, "", "the end where a value should be"},
		{"host example.org", 5, "", "names are not looked up"},
		{"host 10.0.0.0/8", 5, "net 10.0.0.0/8", "not a value for host"},
		{"host fe80::1%eth0", 12, "", "unexpected character"},
		{"net 10.0.0.1/8", 4, "10.0.0.0/8", "bits set"},
		{"net 10.0.0.0/33", 4, "", "not a value for net"},
		{"ip host ::1", 8, "", "not an address of"},
		{"ip6 net 10.0.0.0/8", 8, "", "not an address of"},
		{"port 65536", 5, "", "out of range"},
		{"port 80-90", 5, "portrange 80-90", "not a value for port"},
		{"port http", 5, "", "names are not looked up"},
		{"portrange 90-80", 10, "80-90", "ends before"},
		{"portrange 1-70000", 12, "", "out of range"},
		{"ip port 80", 0, "", "does not go with"},
		{"tcp src 80", 0, "", "does not go with"},
		{"src proto 6", 0, "", "direction"},
		{"src multicast", 0, "", "direction"},
		{"ip broadcast", 0, "", "does not go with"},
		{"proto 256", 6, "", "out of range"},
		{"ether proto 0x5ff", 12, "", "out of range"},
		{"ether", 5, "", "expected host"},
		{"vlan 4096", 5, "", "out of range"},
		{"ether host 10.0.0.1", 11, "", "MAC address"},
		{"tcp and", 7, "", "the end where a test"},
		{"(tcp", 4, "", `for the "(" at byte 0`},
		{"tcp)", 3, "", "left over"},
		{"tcp udp", 4, "", "left over"},
		{"tcp & udp", 4, "&&", "unexpected character"},
		{"tcp | udp", 4, "||", "unexpected character"},
		{"tcp[13] = 2", 3, "", "not supported"},
		{"tcp ä", 4, "", "unexpected character"},
		{"not", 3, "", "the end"},
	} {
		_, err := Parse(c.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Parse(%q) = %v, want an *Error", c.text, err)
			continue
		}
		if e.Offset() != c.offset || e.Suggestion() != c.suggest || !strings.Contains(e.Error(), c.says) {
			t.Errorf("Parse(%q): offset %d, suggestion %q: %v\nwant offset %d, suggestion %q, %q",
				c.text, e.Offset(), e.Suggestion(), e, c.offset, c.suggest, c.says)
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
