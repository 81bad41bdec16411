package bpf

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
)

// expressions have every primitive and combination in them at least once. Each
// means the same to tcpdump for packets without tags and extension headers.
var expressions = []string{
	"", "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp",
	"proto 6", "proto 50", "ip proto 17", "ip6 proto 17", "ip proto 58", "ip6 proto 132",
	"ether proto 0x88cc", `ether proto \ip`, "ether proto 0x86dd",
	"host 10.0.0.1", "src host 10.0.0.1", "dst host 10.0.0.1", "src 10.0.0.2", "dst 10.0.0.2",
	"ip host 10.0.0.1", "arp host 10.0.0.1", "rarp host 10.0.0.1",
	"src and dst host 10.0.0.1", "src or dst host 10.0.0.1", "host 0.0.0.0", "host 255.255.255.255",
	"host 2001:db8::1", "src host 2001:db8::1", "dst host fe80::1", "host ::", "ip6 host 2001:db8::2",
	"net 10.0.0.0/8", "net 10.0.0.0/31", "src net 10.0.0.0/24", "dst net 192.168.0.0/16", "net 128.0.0.0/1",
	"net 10", "net 192.168", "net 10.0.1", "net 0.0.0.0/1", "ip net 10.0.0.0/23",
	"net 2001:db8::/32", "src net 2001:db8::/64", "dst net 2001:db8:0:1::/65", "net 2001:db8::/127", "net 8000::/1",
	"port 80", "src port 80", "dst port 80", "tcp port 80", "udp port 53", "sctp dst port 6000", "tcp src port 443",
	"port 0", "port 65535", "src and dst port 80", "portrange 6000-6100", "udp portrange 1-100",
	"dst portrange 0-22", "src portrange 6050-65535", "portrange 0-65535",
	"ether host 02:00:00:00:00:01", "ether src host 02:00:00:00:00:02", "ether dst 01:00:5e:00:00:05",
	"broadcast", "ether broadcast", "multicast", "ether multicast", "ip multicast", "ip6 multicast",
	"host 10.0.0.1 or 10.0.0.2", "port 80 or 443", "port (80 or 443)", "not port 80 or 443",
	"host 10.0.0.1 and not port 22", "tcp or udp and host 10.0.0.1", "tcp or (udp and host 10.0.0.1)",
	"not ip and not arp", "!(tcp || udp) && ip", "not (host 10.0.0.1 and (port 80 or port 443))",
	"ip and (tcp or udp) and (src net 10.0.0.0/8 or dst net 192.168.0.0/16) and not port 22",
	"not tcp", "not host 10.0.0.1", "not host 2001:db8::1", "not portrange 0-100",
}

// randomTest is a primitive about the pools that packets are made of.
func randomTest(r *rand.Rand) string {
	dir := pick(r, []string{"", "src ", "dst "})
	switch r.IntN(9) {
	case 0:
		return pick(r, []string{"ip", "ip6", "arp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "rarp"})
	case 1:
		return dir + "host " + pick(r, pool4)
	case 2:
		return dir + "host " + pick(r, pool6)
	case 3:
		return dir + "net " + pick(r, []string{"10.0.0.0/8", "10.0.0.0/30", "192.0.0.0/5", "0.0.0.0/4"})
	case 4:
		return dir + "net " + pick(r, []string{"2001:db8::/32", "2001:db8::/63", "fe00::/7", "::/100"})
	case 5:
		return fmt.Sprintf("%s%sport %d", pick(r, []string{"", "tcp ", "udp ", "sctp "}), dir, pick(r, poolPort))
	case 6:
		return fmt.Sprintf("%sportrange %d-%d", dir, r.IntN(80), 80+r.IntN(7000))
	case 7:
		return fmt.Sprintf("ether %shost %s", dir, net.HardwareAddr(pick(r, poolMAC)))
	}
	return fmt.Sprintf("proto %d", pick(r, poolProto))
}

// randomExpression nests to the depth given.
func randomExpression(r *rand.Rand, depth int, test func(*rand.Rand) string) string {
	if depth == 0 || r.IntN(4) == 0 {
		return test(r)
	}
	if r.IntN(4) == 0 {
		return "not (" + randomExpression(r, depth-1, test) + ")"
	}
	var parts []string
	for range 2 + r.IntN(3) {
		parts = append(parts, "("+randomExpression(r, depth-1, test)+")")
	}
	return strings.Join(parts, pick(r, []string{" and ", " or "}))
}

// randomTaggedTest is any primitive, of tags too.
func randomTaggedTest(r *rand.Rand) string {
	switch r.IntN(4) {
	case 0:
		return fmt.Sprintf("vlan %d", pick(r, poolTag))
	case 1:
		return pick(r, []string{"vlan", "ether proto 0x8100", "ip multicast", "ip6 multicast", "multicast", "proto 44", "proto 0", "ip6 proto 60"})
	}
	return randomTest(r)
}
