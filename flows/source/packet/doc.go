// Package packet is the source that receives copies of packets from a packet socket (packet(7),
// AF_PACKET with TPACKET_V3). It is passive: nothing is attached to the interface, and the host
// keeps its packets.
//
// The kernel copies packets one behind the other into blocks of a ring. The worker rewrites a block
// where it lies: the kernel's header of a packet and the gap before the next one become parts of an
// Enhanced Packet Block of pcapng (rewrite.go). The sink writes the whole block to the disk from
// there, and Ring.Release gives it back to the kernel. No byte of a packet is copied, except to put
// a VLAN tag back and where a header would not be aligned; those bytes are counted. No byte of an
// earlier use of the ring remains between packets.
//
//	kernel → block of the ring → records in place → sink → block back to the kernel
//
// The ring is the buffer for a slow disk. When no block is free, the kernel drops packets and counts
// them (PACKET_STATISTICS): offered = received + dropped + waiting.
//
// The worker calls Receive to Deadline. Open and Close run while the worker does not poll the flow.
// The other methods may be called from any goroutine. The oldest kernel is 6.1.
package packet
