package filter

import "slices"

// etherNames are the words for ethertypes.
var etherNames = map[string]int{"ip": etherIPv4, "ip6": etherIPv6, "arp": etherARP, "rarp": etherRARP}

// protoNames are the words for protocol numbers.
var protoNames = map[string]int{
	"icmp": protoICMP, "igmp": protoIGMP, "tcp": protoTCP, "udp": protoUDP,
	"icmp6": protoICMPv6, "sctp": protoSCTP,
}

// protoWords are the words that are a whole test of the protocol: some exist in
// one version of IP only.
var protoWords = map[string]test{
	"tcp":   protoTest(anyNumber, protoTCP),
	"udp":   protoTest(anyNumber, protoUDP),
	"sctp":  protoTest(anyNumber, protoSCTP),
	"icmp":  protoTest(etherIPv4, protoICMP),
	"igmp":  protoTest(etherIPv4, protoIGMP),
	"icmp6": protoTest(etherIPv6, protoICMPv6),
}

func protoTest(family, number int) test {
	return test{subject: subjectProto, family: family, number: number}
}

// nameOf returns the word for number.
func nameOf(names map[string]int, number int) (string, bool) {
	for name, n := range names {
		if n == number {
			return name, true
		}
	}
	return "", false
}

// starters are the words a primitive can begin with.
var starters = []string{
	"ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "ether", "vlan",
	"src", "dst", "host", "net", "port", "portrange", "proto", "multicast", "broadcast",
}

// known are the words with a meaning in some place.
var known = append([]string{"and", "or", "not"}, starters...)

// suggest returns the known word nearest to text, or "" when none is near.
func suggest(text string) string {
	best, least := "", 1+min(len(text)/2, 2)
	for _, w := range known {
		if d := distance(text, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is the number of bytes to add, drop, change, or swap with their
// neighbour, to make b of a. Words longer than any of ours are simply far.
func distance(a, b string) int {
	if len(a) > 16 {
		return len(a)
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+changed(a[i], b[j]))
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

func changed(a, b byte) int {
	if a == b {
		return 0
	}
	return 1
}

func isStarter(text string) bool { return slices.Contains(starters, text) }
