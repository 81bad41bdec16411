// Package stage changes packets and messages in place, on their way from a source to a sink.
//
// A [Chain] is made once from [Step]s and then applied to one Ethernet packet after the other. It overwrites
// addresses, the VLAN and ports ([Set]), or writes a number or the time into the UDP payload ([Sequence],
// [Timestamp]). It inserts and removes nothing, so a packet keeps its length and its place in memory.
//
// Checksums are not computed again but adjusted by what changed (RFC 1624). That costs the same for any
// packet, and needs only the headers (the rest may be in other frames). A wrong checksum stays wrong, so that
// damage is not hidden. A UDP checksum of 0, which means none, stays 0. A change of addresses adjusts the
// checksums that cover them: those of IPv4, TCP, UDP, UDP-Lite, DCCP and ICMPv6. Packets that another program
// on this host sent over a virtual interface may not have a valid checksum yet; a chain does not make it
// valid.
//
// If a step cannot change a packet, it leaves the packet as it is and counts the reason ([Reason]). A step
// does not touch a packet that is cut off within the headers that the step needs, or whose headers contradict
// themselves.
//
// A [Sum] adds one message to another, element by element, for reductions.
//
// Threads: only one thread may call Apply and Add; any goroutine may call Stats. Apply and Add do not
// allocate, and accept bytes from untrusted senders. The caller owns the bytes, and must keep others from
// reading them during the call.
package stage
