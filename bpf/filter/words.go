package filter

import "slices"

// aliases maps words to others with the same meaning.
var aliases = map[string]string{
	"link": "ether", "ppp": "ether", "slip": "ether", "fddi": "ether", "tr": "ether", "wlan": "ether",
}

// abbreviations are the words that are a whole test.
var abbreviations = map[string]func(*generator) cond{
	"ip":      func(g *generator) cond { return g.linkIs(etherIPv4) },
	"ip6":     func(g *generator) cond { return g.linkIs(etherIPv6) },
	"arp":     func(g *generator) cond { return g.linkIs(etherARP) },
	"rarp":    func(g *generator) cond { return g.linkIs(etherRARP) },
	"atalk":   func(g *generator) cond { return g.linkIs(etherATALK) },
	"aarp":    func(g *generator) cond { return g.linkIs(etherAARP) },
	"decnet":  func(g *generator) cond { return g.linkIs(0x6003) },
	"lat":     func(g *generator) cond { return g.linkIs(0x6004) },
	"sca":     func(g *generator) cond { return g.linkIs(0x6007) },
	"mopdl":   func(g *generator) cond { return g.linkIs(0x6001) },
	"moprc":   func(g *generator) cond { return g.linkIs(0x6002) },
	"iso":     func(g *generator) cond { return g.linkIs(sapISO) },
	"stp":     func(g *generator) cond { return g.linkIs(sapSTP) },
	"ipx":     func(g *generator) cond { return g.linkIs(sapIPX) },
	"netbeui": func(g *generator) cond { return g.linkIs(sapNetBEUI) },
	"pppoed":  func(g *generator) cond { return g.linkIs(etherPPPoED) },
	"tcp":     func(g *generator) cond { return g.protoIs(anyNumber, protoTCP) },
	"udp":     func(g *generator) cond { return g.protoIs(anyNumber, protoUDP) },
	"sctp":    func(g *generator) cond { return g.protoIs(anyNumber, protoSCTP) },
	"ah":      func(g *generator) cond { return g.protoIs(anyNumber, protoAH) },
	"esp":     func(g *generator) cond { return g.protoIs(anyNumber, 50) },
	"pim":     func(g *generator) cond { return g.protoIs(anyNumber, 103) },
	"icmp":    func(g *generator) cond { return g.protoIs(etherIPv4, protoICMP) },
	"igmp":    func(g *generator) cond { return g.protoIs(etherIPv4, 2) },
	"igrp":    func(g *generator) cond { return g.protoIs(etherIPv4, 9) },
	"vrrp":    func(g *generator) cond { return g.protoIs(etherIPv4, 112) },
	"carp":    func(g *generator) cond { return g.protoIs(etherIPv4, 112) },
	"icmp6":   func(g *generator) cond { return g.protoIs(etherIPv6, protoICMPv6) },
	"clnp":    func(g *generator) cond { return g.isoIs(0x81) },
	"esis":    func(g *generator) cond { return g.isoIs(0x82) },
	"isis":    func(g *generator) cond { return g.isoIs(isoISIS) },
	"l1":      func(g *generator) cond { return g.isisIs(26, 24, 18, 15, 17) },
	"l2":      func(g *generator) cond { return g.isisIs(16, 20, 25, 27, 17) },
	"iih":     func(g *generator) cond { return g.isisIs(17, 15, 16) },
	"lsp":     func(g *generator) cond { return g.isisIs(18, 20) },
	"snp":     func(g *generator) cond { return g.isisIs(26, 27, 24, 25) },
	"csnp":    func(g *generator) cond { return g.isisIs(24, 25) },
	"psnp":    func(g *generator) cond { return g.isisIs(26, 27) },
}

// llcKinds are the words after llc, with the value and the mask of the control field.
var llcKinds = map[string][2]uint32{
	"s": {0x01, 0x03}, "u": {0x03, 0x03}, "rr": {0x01, 0x0f}, "rnr": {0x05, 0x0f}, "rej": {0x09, 0x0f},
	"ui": {0x03, 0xef}, "ua": {0x63, 0xef}, "disc": {0x43, 0xef}, "sabme": {0x6f, 0xef}, "test": {0xe3, 0xef},
	"xid": {0xaf, 0xef}, "frmr": {0x87, 0xef}, "i": {0x00, 0x01},
}

// refused are libpcap's words for things that are not in an Ethernet frame, or not in a packet at
// all, with a remedy.
var refused = map[string]string{
	"inbound":  "a packet does not say its direction: a capture takes what is received, or the direction that is chosen: from.mirror, -Q in",
	"outbound": "a packet does not say its direction: write -Q out, or from.mirror: egress",
	"gateway":  "tcpdump has it without IPv6 only: write ether host NAME and not host NAME, or their addresses",
	"ifindex":  "one interface is filtered at a time: leave the word out",
	"byte":     "write ether[N] = V",
	"radio":    noWLAN, "type": noWLAN, "subtype": noWLAN, "subtypes": noWLAN, "direction": noWLAN, "dir": noWLAN,
	"addr1": noWLAN, "addr2": noWLAN, "addr3": noWLAN, "addr4": noWLAN, "address1": noWLAN, "address2": noWLAN,
	"address3": noWLAN, "address4": noWLAN, "ra": noWLAN, "ta": noWLAN,
	"on": noPF, "ifname": noPF, "rnr": noPF, "rulenum": noPF, "reason": noPF, "rset": noPF, "ruleset": noPF, "srnr": noPF,
	"subrulenum": noPF, "action": noPF,
	"lane": noATM, "llcatm": noATM, "oamf4": noATM, "oamf4s": noATM, "oamf4e": noATM, "oamf4sc": noATM, "oamf4ec": noATM, "oam": noATM, "metac": noATM,
	"bcc": noATM, "sc": noATM, "ilmic": noATM, "vpi": noATM, "vci": noATM, "connectmsg": noATM, "metaconnect": noATM,
	"fisu": noSS7, "lssu": noSS7, "lsu": noSS7, "msu": noSS7, "hfisu": noSS7, "hlssu": noSS7, "hmsu": noSS7,
	"sio": noSS7, "opc": noSS7, "dpc": noSS7, "sls": noSS7, "hsio": noSS7, "hopc": noSS7, "hdpc": noSS7, "hsls": noSS7,
}

const (
	noWLAN = "it asks for headers of 802.11, and here frames are Ethernet"
	noPF   = "it asks for what OpenBSD's packet filter writes down, and here frames are Ethernet"
	noATM  = "it asks for ATM, and here frames are Ethernet"
	noSS7  = "it asks for SS7, and here frames are Ethernet"
)

// starters are the words a primitive can begin with.
var starters = makeStarters()

func makeStarters() []string {
	list := []string{
		"ether", "vlan", "mpls", "pppoes", "geneve", "llc", "less", "greater", "len",
		"src", "dst", "host", "net", "port", "portrange", "proto", "protochain", "multicast", "broadcast",
	}
	for w := range abbreviations {
		list = append(list, w)
	}
	for w := range aliases {
		list = append(list, w)
	}
	slices.Sort(list)
	return list
}

// suggestible are the words that are worth suggesting: they have a meaning in some place.
var suggestible = slices.DeleteFunc(append([]string{"and", "or", "not"}, starters...), func(w string) bool { return len(w) < 3 && w != "ip" && w != "or" })

// suggest returns the word nearest to text, or "" when none is near.
func suggest(text string) string {
	best, least := "", 1+min(len(text)/2, 2)
	for _, w := range suggestible {
		if d := distance(text, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is the number of bytes to add, drop, change, or swap with their neighbour, to turn a
// into b. Words longer than any of ours count as far.
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
