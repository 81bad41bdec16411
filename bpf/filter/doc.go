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
// Refused, with what to write instead, are "ip broadcast", for which a mask is missing,
// inbound and outbound, which no packet says, addresses of DECnet, and tests of other link
// layers.
//
// An expression that no packet satisfies is refused, as tcpdump does: the error matches [ErrRejectsAll].
// rejectsAll follows the ways through the program that lead to accept, with the bits and ranges that each test
// leaves of the bytes it reads, and looks for one that does not contradict itself. What tcpdump refuses so is
// refused, and some that tcpdump takes; an expression with too many ways to look at is taken.
//
// # Meaning
//
// An expression accepts the packets that libpcap accepts of a file, broken ones too; a
// test of package bpf asks tcpdump. That means: "tcp" sees no tagged packet, each vlan,
// mpls, pppoes and geneve moves everything behind it in the text, ports are looked for
// neither behind IPv6 extension headers nor in later fragments, and a packet that ends
// in front of a field that is asked for is rejected as a whole, also under not. Which
// fields are asked for libpcap's optimizer decides as well: a test is left out where its
// answer makes no difference.
//
// A field is read in the first 32 KiB, and in the linear part of a packet that the driver
// hands over in several buffers, and protochain goes over 32 headers at most: what is
// behind counts as behind the end. A VLAN tag that the card removes before XDP runs is
// not in the packet and cannot be tested: package xdp has cards leave it there, where
// they can.
//
// # How it is compiled
//
// The parser makes a tree of tests with their text. The generator spells each out, in the
// order of the text, as code for the accumulator machine of classic BPF and a comparison;
// compile makes blocks of them, shorten leaves out what is known already, and assemble
// makes instructions that check where the packet ends before each read that an earlier
// check does not cover. A Matcher runs the same blocks.
//
// # Rules
//
// An Expr does not change after Parse and may be used from any goroutine.
// Instructions need a kernel with 32-bit jumps, Linux 5.1 or later.
package filter
