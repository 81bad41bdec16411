package wire

import "encoding/binary"

const (
	// BTHBytes is the length of the base transport header.
	BTHBytes = 12
	// MaxHeaderBytes is the greatest length of a base transport header with its extension
	// headers: those of an atomic.
	MaxHeaderBytes = 40
	// CNPBytes is the length of a CNP's payload, all of it zero and ignored.
	CNPBytes = 16
	// DefaultPKey is the default partition with full membership, the only one of RoCE.
	DefaultPKey = 0xffff
)

// be is the byte order of everything but the ICRC.
var be = binary.BigEndian

// Header is the base transport header of a packet and every extension header it may have.
// Fields of extension headers that the opcode does not have are zero after Decode and ignored
// by Encode. The transport version is not a field: it is zero.
type Header struct {
	Opcode    Opcode
	Pad       uint8 // bytes of padding after the payload, 0 to 3
	Solicited bool  // wakes a completion queue armed for solicited completions
	MigReq    bool  // path migration state: set
	FECN      bool  // not used by RoCE v2, which marks congestion in the IP header
	BECN      bool  // set in a CNP
	AckReq    bool  // the responder shall acknowledge
	PKey      uint16
	DestQPN   uint32 // 24 bits
	PSN       PSN
	// Reserved are the reserved bits, kept so that a packet encodes to the same bytes. They are
	// zero in packets that we send.
	Reserved Reserved

	// RETH and AtomicETH.
	VA        uint64 // in the peer's memory
	RKey      uint32
	DMALength uint32 // of the whole message in bytes; RETH only
	SwapAdd   uint64 // what CompareSwap stores, what FetchAdd adds
	Compare   uint64 // of CompareSwap

	// AETH and AtomicAckETH.
	Syndrome Syndrome
	MSN      uint32 // 24 bits: messages that the responder has completed
	Original uint64 // the value before the atomic

	Immediate  [4]byte // as the sender gave it
	Invalidate uint32  // the rkey to invalidate

	// DETH.
	QKey      uint32
	SourceQPN uint32 // 24 bits
}

// Reserved are a header's reserved bits, in the lower bits of each.
type Reserved struct {
	BTH4 uint8 // six, next to FECN and BECN
	BTH8 uint8 // seven, next to AckReq
	DETH uint8 // eight, in front of SourceQPN
}
