package filter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/linktype"
)

// TestRejectsAll: Parse refuses an expression of which a test contradicts another one of the same field, with tcpdump's words. It
// accepts one that only looks contradictory.
func TestRejectsAll(t *testing.T) {
	for _, text := range []string{
		"icmp and vlan", "ip and ip6", "tcp and udp", "tcp src port 1024 and udp", "ip6 and udp[10] & 1 != 0", "(src port 80) and (ip and src net 10.0.0.1) and (vlan 1)",
		"1 = 2", "tcp and 1 > 2", "src port 80 and src port 81", "src host 10.0.0.1 and src host 10.0.0.2", "ip[8] = 1 and ip[8] = 2", "len = 5 and len != 5",
		"(port 80 or port 443) and icmp",
	} {
		_, err := Parse(text)
		if !errors.Is(err, ErrRejectsAll) || !strings.Contains(fmt.Sprint(err), "expression rejects all packets") {
			t.Errorf("Parse(%q) = %v, want ErrRejectsAll", text, err)
		}
	}
	for _, text := range []string{
		"vlan and icmp", "ip or ip6", "not (ip and ip6)", "tcp or udp", "port 80 and port 443", "ip[8] > 3 and ip[8] < 5", "ip[8] + ip[9] = 500",
		"tcp[13] & 2 != 0 and tcp[13] = 2", "1 = 1", "tcp and 2 > 1", "src host 10.0.0.1 and dst host 10.0.0.2", "geneve and vlan and icmp",
		"ip6 protochain 6 and ip6 protochain 17", "ip[ip[0] & 15] = 1 and ip[ip[1] & 15] = 2", "-ip[8] > 5", "host 10.0.0.1 and host 10.0.0.2",
		"ip[8] > 5 and ip[8] < 3", "less 10 and greater 20", "src net 10.0.0.0/8 and src host 192.168.0.1", // no packet matches, and Parse does not see it
	} {
		if _, err := Parse(text); err != nil {
			t.Errorf("Parse(%q): %v", text, err)
		}
	}
	for _, text := range []string{"arp", "stp", "ip and arp", "pppoes", "isis", "ether proto 0x88cc"} {
		if _, err := ParseFor(linktype.RawIP, text); !errors.Is(err, ErrRejectsAll) {
			t.Errorf("%q of packets that begin with IP: %v, want ErrRejectsAll", text, err)
		}
	}
}

// TestLinkTypes: for packets without Ethernet headers, Parse refuses a test of something that only Ethernet
// has, and names it. It also refuses unknown link types.
func TestLinkTypes(t *testing.T) {
	for text, says := range map[string]string{
		"ether host 02:00:00:00:00:01": "no Ethernet addresses", "broadcast": "no Ethernet addresses", "multicast": "no Ethernet addresses",
		"vlan": "no VLAN tags", "vlan 5 and ip": "no VLAN tags", "mpls": "no labels of MPLS", "llc": "no LLC",
	} {
		if _, err := ParseFor(linktype.RawIP, text); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "RAW") {
			t.Errorf("%q: %v, want it to say %q of RAW", text, err, says)
		}
	}
	if _, err := ParseFor(113, "ip"); err == nil || !strings.Contains(err.Error(), "LINUX_SLL (113)") {
		t.Errorf("link type 113: %v", err)
	}
	raw, err := ParseFor(linktype.RawIP, "ip")
	if err != nil || raw.Fits(linktype.Ethernet) || !raw.Fits(linktype.RawIP) || !new(Expr).Fits(linktype.RawIP) {
		t.Errorf("Fits of an expression for RAW: %v", err)
	}
}

// TestRejectsInTime: Parse needs a bounded time for a long expression, contradictory or not.
func TestRejectsInTime(t *testing.T) {
	hosts := func(of, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("10.%d.%d.%d", of, i>>8, i&255))
		}
		return "host (" + strings.Join(all, " or ") + ")"
	}
	for name, text := range map[string]string{
		"taken":        hosts(1, 4000),
		"excluded":     "not " + hosts(1, 4000),
		"contradicted": "src " + hosts(1, 1000) + " and src " + hosts(2, 1000),
		"ports":        "port (" + strings.Repeat("1 or ", 10000) + "2) and not port (" + strings.Repeat("1 or ", 10000) + "2)",
	} {
		begin := time.Now()
		_, err := Parse(text)
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%s: %v after %s", name, err, took)
		}
		t.Logf("%s: %s, %v", name, time.Since(begin), err)
	}
}
