// Package filter compiles tcpdump's expressions to BPF instructions.
//
// [Parse] parses an expression, [Expr.String] prints it with all optional parts,
// [Expr.Instructions] compiles it to the body of a function of the XDP program of package bpf, and
// [Expr.Matcher] evaluates it in user space.
//
// # Syntax
//
// The syntax is that of pcap-filter(7), for Ethernet, and with [ParseFor] for packets that begin
// with an IP header. docs/reference/filters.md lists the primitives. As in tcpdump, and and or have the same
// precedence and group from the left, and a value without qualifiers takes those of the value
// before it: "host a or b", "port (80 or 443)". Parse looks up names of hosts once, for at most 5
// s. The empty expression accepts everything.
//
// Parse refuses some expressions, with a suggestion: "ip broadcast", which needs a netmask; inbound
// and outbound, which are not in a packet; addresses of DECnet; tests of other link layers; and an
// expression that no packet satisfies ([ErrRejectsAll]). Of the last kind it accepts what only
// ranges or masks show, such as "ip[8] > 5 and ip[8] < 3", as tcpdump does, and a few that tcpdump refuses.
//
// # Meaning
//
// An expression accepts the packets that libpcap accepts in a file, including malformed ones. A
// test of package bpf compares the two. So "tcp" does not match tagged packets; each vlan, mpls,
// pppoes and geneve changes the offset of all later tests in the text; ports are not found after
// IPv6 extension headers or in later fragments; and a packet that ends before a tested field is
// rejected as a whole, even under not. A filter reads fields in the first 32 KiB, and in the linear
// part of a packet in several buffers. protochain follows at most 32 headers. A VLAN tag that the
// card removes is not in the packet and cannot be tested.
//
// # How it is compiled
//
// The parser makes a tree of tests with their text. The generator translates each to code of the
// accumulator machine of classic BPF and a comparison. compile turns them into blocks, shorten
// removes tests whose result is known, and assemble generates instructions, with a check of the
// packet's end before each read that needs one. A Matcher runs the same blocks.
//
// An Expr does not change after Parse, and any goroutine may use it. Instructions need a kernel
// with 32-bit jumps, Linux 5.1 or later.
package filter
