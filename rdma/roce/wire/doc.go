// Package wire reads and writes the bytes of RoCE v2 packets. It knows nothing of queue pairs,
// sockets or memory.
//
// A packet is Ethernet, up to two VLAN tags, IPv4 or IPv6 and UDP to port 4791: the [Envelope]. It
// is followed by the base transport header (BTH) and the extension headers of its [Opcode], both
// in one flat [Header]; then the payload, up to three bytes of padding to a multiple of four, and
// the invariant CRC ([ICRC]) over everything that a router leaves unchanged.
//
//	frame:     [Ethernet 14][VLAN 0-8][IP 20|40][UDP 8][BTH 12][extensions 0-28][payload][pad 0-3][ICRC 4]
//	           |-------------- Envelope --------------||------- Header ---------|
//	transport:                                         |---------------- Envelope.Length --------------|
//
// A received packet is parsed ([Envelope.Parse]), checked ([ICRC.Intact], or [Check] for one in a
// single piece), decoded ([Header.Decode]) and measured ([Header.PayloadLen], [CheckPayload]).
// Each step returns a mistake as a [Malformed], a small number to count by. A packet to be sent is
// the envelope of a [Template], which is computed once for all packets to a peer, the header
// ([Header.Encode]), the payload from any place, and the trailer ([ICRC.Finish]).
//
// All bytes are untrusted before the ICRC is checked, and afterwards too: it is no signature.
// Nothing here reads or writes outside its slices. Lengths are from the UDP header, never from the
// frame, which Ethernet pads.
//
// Threads. Functions share nothing. Several threads may use a Template once it is made.
//
// Only the texts of String allocate.
//
// Sources: InfiniBand Architecture Specification, volume 1, chapters 5 and 9, annexes A16 and A17
// (RoCE, RoCE v2); rxe_hdr.h, rxe_opcode.c and rxe_icrc.c of drivers/infiniband/sw/rxe and
// include/rdma/ib_verbs.h of Linux.
package wire
