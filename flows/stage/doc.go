// Package stage changes packets and messages on their way, where they are.
//
// A [Chain] is made once from [Step]s and then applied to the bytes of one Ethernet packet
// after the other: it overwrites addresses, the VLAN and ports ([Set]), or writes a number or the
// time into the UDP payload ([Sequence], [Timestamp]). Nothing is inserted or removed, so a
// packet keeps its length and its place in memory.
//
// Checksums are not computed again but adjusted by what changed (RFC 1624). That costs the
// same for any packet, needs only the headers (the rest may be in other frames), and a
// checksum that was wrong stays wrong, so that damage is not hidden. A UDP checksum of 0, which means none, stays 0.
// With the addresses, the checksums that cover them are adjusted: those of IPv4, TCP, UDP, UDP-Lite, DCCP and ICMPv6.
// Packets which another program on this host sent over a virtual interface may have no real checksum yet;
// they have none afterwards either.
//
// What a step cannot do to a packet it leaves, and counts why ([Reason]). A packet that is cut off within the
// headers a step is about, or whose headers contradict themselves, is not touched by that step at all.
//
// A [Sum] adds one message to another, element by element, for reductions.
//
// Threads: Apply and Add are for one thread; Stats may be called from any. Neither allocates, and both take bytes
// from strangers. The bytes stay the caller's, who keeps others from reading them meanwhile.
package stage
