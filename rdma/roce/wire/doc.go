// Package wire is how RoCE v2 looks on the wire: it reads and writes the bytes of its
// packets and knows nothing of queue pairs, sockets or memory.
//
// A packet is Ethernet, up to two VLAN tags, IPv4 or IPv6 and UDP to port 4791: the
// [Envelope]. Behind it are the base transport header (BTH) and the extension headers
// that its [Opcode] asks for, both in one flat [Header]; then the payload, up to three
// bytes of padding that make it a multiple of four, and the invariant CRC ([ICRC]) over
// everything a router leaves alone.
//
//	frame:     [Ethernet 14][VLAN 0-8][IP 20|40][UDP 8][BTH 12][extensions 0-28][payload][pad 0-3][ICRC 4]
//	           |-------------- Envelope --------------||------- Header ---------|
//	transport:                                         |---------------- Envelope.Length --------------|
//
// A packet received is parsed ([Envelope.Parse]), checked ([ICRC.Intact], or [Check] where it
// lies in one piece), decoded ([Header.Decode]) and measured ([Header.PayloadLen],
// [CheckPayload]). Each step says what is wrong as a [Malformed], a small number to count
// by and not an error to build. A packet to be sent is the envelope of a [Template], which has
// worked out beforehand what is the same for every packet to a peer, the header
// ([Header.Encode]), the payload from wherever it lies, and the trailer ([ICRC.Finish]).
//
// All bytes are hostile until the ICRC is checked, and after it as well: it is no signature. Nothing
// here reads or writes outside the slices it was given. Lengths come from the UDP header, never
// from the frame, which Ethernet pads.
//
// Threads. Functions compute on what they are given and share nothing. A Template may
// be used by several threads at once once it is made.
//
// Nothing here allocates but [NewTemplate]'s errors and the texts of String.
//
// Sources: InfiniBand Architecture Specification, volume 1, chapters 5 and 9, annexes A16
// and A17 (RoCE, RoCE v2); rxe_hdr.h, rxe_opcode.c and rxe_icrc.c of
// drivers/infiniband/sw/rxe and include/rdma/ib_verbs.h of Linux.
package wire
