package bpf

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
)

// randomTest is a tcpdump primitive about the pools from which packets are made.
func randomTest(r *rand.Rand) string {
	dir := pick(r, []string{"", "src ", "dst "})
	switch r.IntN(13) {
	case 9:
		return pick(r, []string{"vlan", "vlan 5", "vlan 6", "ether proto 0x8100", "ip multicast", "ip6 multicast", "multicast", "llc", "stp", "iso"})
	case 10:
		return randomTerm(r, 2) + pick(r, []string{" = ", " != ", " > ", " < ", " >= ", " <= "}) + randomTerm(r, 1)
	case 11:
		return pick(r, []string{"proto 44", "proto 0", "ip6 proto 60", "ip6 protochain 6", "protochain 17", "less 70", "greater 80"})
	case 12:
		return pick(r, []string{"tcp[13] & 2 != 0", "icmp[0] = 8", "icmp6[0] = 128", "ip[6:2] & 0x1fff = 0", "udp[4:2] > 20"})
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

// randomTerm is a calculation with bytes of the packet.
func randomTerm(r *rand.Rand, depth int) string {
	layers := []string{"ether", "ip", "ip6", "tcp", "udp", "icmp", "icmp6", "arp"}
	switch n := r.IntN(8); {
	case n < 2 && depth > 0:
		return fmt.Sprintf("(%s %s %s)", randomTerm(r, depth-1), pick(r, []string{"+", "-", "*", "/", "&", "|", "^", "%"}), randomTerm(r, depth-1))
	case n < 5:
		return fmt.Sprintf("%s[%d:%d]", pick(r, layers), r.IntN(60), pick(r, []int{1, 2, 4}))
	case n < 6 && depth > 0:
		return fmt.Sprintf("%s[%s & 31]", pick(r, layers), randomTerm(r, depth-1))
	case n < 7:
		return "len"
	}
	return fmt.Sprint(1 + r.IntN(300))
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
