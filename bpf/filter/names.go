package filter

import (
	"net"
	"strconv"
	"strings"
)

// number reads a number as C does (decimal, hexadecimal after 0x, octal after 0), or one of
// libpcap's names.
func number(text string) (uint32, bool) {
	if n, ok := constants[text]; ok {
		return n, true
	}
	digits, base := text, 10
	switch {
	case len(text) > 2 && (text[:2] == "0x" || text[:2] == "0X"):
		digits, base = text[2:], 16
	case len(text) > 1 && text[0] == '0':
		digits, base = text[1:], 8
	}
	n, err := strconv.ParseUint(digits, base, 32)
	return uint32(n), err == nil
}

// constants are names for numbers: offsets in headers, types of messages, flags.
var constants = map[string]uint32{
	"icmptype": 0, "icmpcode": 1, "icmp6type": 0, "icmp6code": 1, "tcpflags": 13,
	"icmp-echoreply": 0, "icmp-unreach": 3, "icmp-sourcequench": 4, "icmp-redirect": 5, "icmp-echo": 8,
	"icmp-routeradvert": 9, "icmp-routersolicit": 10, "icmp-timxceed": 11, "icmp-paramprob": 12,
	"icmp-tstamp": 13, "icmp-tstampreply": 14, "icmp-ireq": 15, "icmp-ireqreply": 16,
	"icmp-maskreq": 17, "icmp-maskreply": 18,
	"icmp6-destinationunreach": 1, "icmp6-packettoobig": 2, "icmp6-timeexceeded": 3, "icmp6-parameterproblem": 4,
	"icmp6-echo": 128, "icmp6-echoreply": 129, "icmp6-multicastlistenerquery": 130,
	"icmp6-multicastlistenerreportv1": 131, "icmp6-multicastlistenerdone": 132, "icmp6-routersolicit": 133,
	"icmp6-routeradvert": 134, "icmp6-neighborsolicit": 135, "icmp6-neighboradvert": 136, "icmp6-redirect": 137,
	"icmp6-routerrenum": 138, "icmp6-nodeinformationquery": 139, "icmp6-nodeinformationresponse": 140,
	"icmp6-ineighbordiscoverysolicit": 141, "icmp6-ineighbordiscoveryadvert": 142,
	"icmp6-multicastlistenerreportv2": 143, "icmp6-homeagentdiscoveryrequest": 144,
	"icmp6-homeagentdiscoveryreply": 145, "icmp6-mobileprefixsolicit": 146, "icmp6-mobileprefixadvert": 147,
	"icmp6-certpathsolicit": 148, "icmp6-certpathadvert": 149, "icmp6-multicastrouteradvert": 151,
	"icmp6-multicastroutersolicit": 152, "icmp6-multicastrouterterm": 153,
	"tcp-fin": 1, "tcp-syn": 2, "tcp-rst": 4, "tcp-push": 8, "tcp-ack": 16, "tcp-urg": 32, "tcp-ece": 64, "tcp-cwr": 128,
}

// ipProtocols are the names after proto and protochain.
var ipProtocols = map[string]int{
	"icmp": protoICMP, "igmp": 2, "ipencap": 4, "tcp": protoTCP, "egp": 8, "igp": 9, "igrp": 9, "udp": protoUDP,
	"ipv6": 41, "ipv6-route": protoRouting, "ipv6-frag": protoFragment, "rsvp": 46, "gre": 47, "esp": 50, "ah": protoAH,
	"icmp6": protoICMPv6, "ipv6-icmp": protoICMPv6, "ipv6-nonxt": protoNone, "ipv6-opts": protoDstOpts, "ospf": 89, "pim": 103,
	"vrrp": 112, "carp": 112, "l2tp": 115, "sctp": protoSCTP, "udplite": 136,
}

// etherProtocols are the names after ether proto.
var etherProtocols = map[string]int{
	"ip": etherIPv4, "ip6": etherIPv6, "arp": etherARP, "rarp": etherRARP, "atalk": etherATALK, "aarp": etherAARP,
	"decnet": 0x6003, "lat": 0x6004, "sca": 0x6007, "mopdl": 0x6001, "moprc": 0x6002, "loopback": 0x9000,
	"iso": sapISO, "stp": sapSTP, "ipx": sapIPX, "netbeui": sapNetBEUI,
}

// isoProtocols are the names after iso proto.
var isoProtocols = map[string]int{"clnp": 0x81, "esis": 0x82, "isis": isoISIS}

// service returns the port number of a name and its protocol, or anyNumber if it has several
// protocols.
func service(name string) (port, proto int, ok bool) {
	proto = 0
	for network, number := range map[string]int{"tcp": protoTCP, "udp": protoUDP} {
		if n, err := net.LookupPort(network, name); err == nil {
			port = n
			if proto += number; proto != number {
				proto = anyNumber
			}
			ok = true
		}
	}
	return port, proto, ok && strings.TrimLeft(name, "0123456789") != ""
}
