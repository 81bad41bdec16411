// Package filter compiles tcpdump's expressions to BPF instructions.
//
// An expression is parsed by [Parse], printed as it was understood by
// [Expr.String], compiled by [Expr.Instructions] to the body of a function of the
// XDP program of package bpf, and evaluated in user space by [Expr.Matcher].
//
// # Syntax
//
// The syntax is that of pcap-filter(7), for Ethernet, and with [ParseFor] for packets that begin with the header of IP:
//
//	[ip|ip6|arp|rarp] [src|dst] host ADDRESS, net PREFIX, net ADDRESS mask MASK
//	[tcp|udp|sctp] [src|dst] port N, portrange A-B     N is a number or a service
//	ether [src|dst] host MAC, [ether|ip|ip6] multicast, [ether] broadcast
//	[ip|ip6] proto N, [ip|ip6] protochain N, ether proto N, iso proto N
//	ip ip6 arp rarp tcp udp sctp icmp icmp6 igmp ah esp pim vrrp, and the older ones
//	vlan [ID], mpls [LABEL], pppoed, pppoes [SESSION], geneve [NETWORK]
//	llc [KIND], iso, clnp, esis, isis and their kinds
//	less N, greater N
//	A > B, >=, <, <=, =, !=      A and B calculate with + - * / % & | ^ << >> from
//	                             numbers, len, and bytes: tcp[13], ip[2:2], ether[0:4]
//
// joined by and (&&), or (||), not (!) and parentheses. As in tcpdump, and and or
// have the same precedence and group from the left, a direction may be "src or dst"
// (the default) or "src and dst", "src ADDRESS" means "src host ADDRESS", and a value
// without qualifiers takes those of the value before it: "host a or b", "port (80 or
// 443)". The empty expression accepts everything.
//
// Names stand for numbers where tcpdump has them so: services and ranges of them, protocols
// (/etc/protocols), networks (/etc/networks), Ethernet addresses (/etc/ethers), and hosts, which Parse
// asks the resolver for, 5 s at most; an expression is about the addresses that they had then.
//
// Refused, with a suggestion, are "ip broadcast", which needs a netmask, inbound and
// outbound, which are not in a packet, addresses of DECnet, and tests of other link layers.
//
// An expression that no packet satisfies is refused, as tcpdump does: the error matches
// [ErrRejectsAll]. The check follows the paths through the program that accept, with the bits
// and ranges that each test leaves, and looks for one without a contradiction. It refuses all
// that tcpdump refuses for this reason, and more. An expression with too many paths is accepted.
//
// # Meaning
//
// An expression accepts the packets of a file that libpcap accepts, also malformed ones; a
// test of package bpf compares the two. So "tcp" does not match tagged packets; each vlan,
// mpls, pppoes and geneve changes the offset of all later tests in the text; ports are not
// found after IPv6 extension headers or in later fragments; and a packet that ends before a
// tested field is rejected as a whole, also under not. A test is left out where its result
// makes no difference, as libpcap's optimizer does.
//
// Fields are read in the first 32 KiB and in the linear part of a packet that the driver
// delivers in several buffers, and protochain follows at most 32 headers. Bytes beyond that
// count as beyond the end. A VLAN tag that the card removes before XDP is not in the packet
// and cannot be tested; package xdp makes cards leave it, where they can.
//
// # How it is compiled
//
// The parser makes a tree of tests with their text. The generator translates each, in the
// order of the text, to code of the accumulator machine of classic BPF and a comparison.
// compile makes blocks of them, shorten removes tests whose result is known, and assemble
// makes instructions, with a check of the packet's end before each read that an earlier check
// does not cover. A Matcher runs the same blocks.
//
// # Rules
//
// An Expr does not change after Parse, and any goroutine may use it. Instructions need a
// kernel with 32-bit jumps, Linux 5.1 or later.
package filter
