// Package filter compiles tcpdump-like expressions to BPF instructions.
//
// An expression is parsed by [Parse], printed as it was understood by
// [Expr.String], and compiled by [Expr.Instructions] to the body of a function
// over struct parsed, the summary of a packet that the XDP program of package
// bpf makes before it asks the filter. The filter never sees the packet itself,
// so no expression can read outside of it, and the kernel's verifier has little
// to prove.
//
// # Syntax
//
// The primitives are tcpdump's (pcap-filter(7)):
//
//	ip  ip6  arp  rarp  tcp  udp  sctp  icmp  icmp6  igmp
//	[ip|ip6] proto N            N is a number or one of the names above
//	ether proto N               N is 0x600 to 0xffff, or ip, ip6, arp, rarp
//	[ip|ip6|arp|rarp] [src|dst] host ADDRESS
//	[ip|ip6|arp|rarp] [src|dst] net PREFIX
//	[tcp|udp|sctp] [src|dst] port N
//	[tcp|udp|sctp] [src|dst] portrange A-B
//	ether [src|dst] host MAC
//	vlan [ID]
//	[ether|ip|ip6] multicast    [ether] broadcast
//
// joined by and (&&), or (||), not (!) and parentheses. As in tcpdump, and and
// or have the same precedence and group from the left, a direction may be "src
// or dst" (the default) or "src and dst", "src ADDRESS" means "src host
// ADDRESS", and a value without qualifiers takes those of the value before it:
// "host a or b", "port (80 or 443)". The empty expression accepts everything.
// Names of hosts and services are not looked up.
//
// # Meaning
//
// Fields are looked for where they are: behind up to two VLAN tags (0x8100,
// 0x88a8, 0x9100) and behind up to eight IPv6 extension headers (hop-by-hop,
// routing, fragment, destination options, authentication). This differs from
// tcpdump, where "tcp" sees no tagged packet, a "vlan" earlier in the
// expression moves every offset after it, and ports behind extension headers
// are not found. Here the order of primitives never matters: "vlan 5" is true
// when either tag has that number, and "ether proto" is the type behind the
// tags.
//
// A test of a field that the packet does not have is false, and its negation is
// true: "not port 80" accepts ARP, and fragments other than the first, which
// carry no ports. (tcpdump rejects a packet as a whole once it reads behind its
// end.) "host" and "net" test the addresses of IPv4, IPv6, and of ARP and RARP
// messages for IPv4 over Ethernet. A field is read only in the linear part of a
// packet that the driver hands over in several buffers.
//
// A VLAN tag that the card removes before XDP runs is not in the packet and
// cannot be tested: package xdp has cards leave it there, where they can.
//
// # Rules
//
// An Expr does not change after Parse and may be used from any goroutine.
// Instructions need a kernel with 32-bit jumps, Linux 5.1 or later.
package filter
