package rdma

import (
	"encoding/binary"
	"fmt"
)

// Op is what a send work request does: enum ibv_wr_opcode, with its numbers.
type Op uint32

const (
	Write           Op = 0 // RDMA WRITE into the peer's memory
	WriteImmediate  Op = 1 // the same, and it consumes one of the peer's receives
	Send            Op = 2 // into a receive that the peer posted
	SendImmediate   Op = 3
	Read            Op = 4 // RDMA READ of the peer's memory
	CompareSwap     Op = 5 // of eight bytes of the peer's memory
	FetchAdd        Op = 6
	LocalInvalidate Op = 7 // of a memory window of ours
	SendInvalidate  Op = 9 // SEND that also invalidates one of the peer's rkeys
)

var opNames = map[Op]string{Write: "WRITE", WriteImmediate: "WRITE with immediate", Send: "SEND", SendImmediate: "SEND with immediate",
	Read: "READ", CompareSwap: "compare-and-swap", FetchAdd: "fetch-and-add", LocalInvalidate: "local invalidate", SendInvalidate: "SEND with invalidate"}

func (o Op) String() string {
	if s, ok := opNames[o]; ok {
		return s
	}
	return fmt.Sprintf("operation %d", uint32(o))
}

// Flags of a send work request: enum ibv_send_flags.
type Flags uint32

const (
	Fence     Flags = 1 << 0 // starts after earlier READs and atomics are complete
	Signaled  Flags = 1 << 1 // success gives a completion; failure always does
	Solicited Flags = 1 << 2 // the peer's completion also wakes those who wait only for solicited ones
	Inline    Flags = 1 << 3 // the bytes are copied when it is posted, from memory registered whole
)

// SGE is one scatter/gather element, struct ibv_sge.
type SGE struct {
	Addr   uint64 // in the registration: for a whole region, a frame's address
	Length uint32 // bytes
	LKey   uint32
}

// SendRequest is one work request of a send queue. The local memory that it reads (or, for READ and
// atomics, writes) is the next SGEs elements of the list posted with it. The device owns the memory
// from the post until the completion of the request, or of a later signaled one. The zero value is
// a WRITE of no bytes.
type SendRequest struct {
	ID    uint64 // comes back in the completion
	Op    Op
	Flags Flags
	SGEs  uint32 // number of its elements in the list
	// Immediate is sent verbatim by the operations that have one. For SendInvalidate and
	// LocalInvalidate it is the rkey, see Invalidate.
	Immediate  [4]byte
	RemoteAddr uint64 // in the peer's memory; for atomics a multiple of 8
	RKey       uint32 // the peer's grant
	// Of a datagram: the destination.
	RemoteQPN  uint32
	RemoteQKey uint32
	Handle     uint32 // AddressHandle.ID
	// Of atomics: CompareSwap stores Swap if it finds Compare, FetchAdd adds Compare.
	Compare uint64
	Swap    uint64
}

// ReceiveRequest is one work request of a receive queue. It takes one message into the next SGEs
// elements of the list posted with it.
type ReceiveRequest struct {
	ID   uint64 // comes back in the completion
	SGEs uint32
	_    uint32
}

// GRHBytes is the length of the network header before a received datagram: an IPv6 header, or
// twenty unspecified bytes and an IPv4 header.
const GRHBytes = 40

// Kind is what a completion completes: enum ibv_wc_opcode, with its numbers. It is valid only if
// the status is Success.
type Kind uint32

const (
	SendDone            Kind = 0
	WriteDone           Kind = 1
	ReadDone            Kind = 2
	CompareSwapDone     Kind = 3
	FetchAddDone        Kind = 4
	BindDone            Kind = 5
	LocalInvalidateDone Kind = 6
	Received            Kind = 128 // a SEND of the peer's
	ReceivedWrite       Kind = 129 // a WRITE with immediate of the peer's
)

var kindNames = map[Kind]string{SendDone: "SEND", WriteDone: "WRITE", ReadDone: "READ", CompareSwapDone: "compare-and-swap", FetchAddDone: "fetch-and-add",
	BindDone: "bind", LocalInvalidateDone: "local invalidate", Received: "receive", ReceivedWrite: "receive of WRITE with immediate"}

func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("completion %d", uint32(k))
}

// CompletionFlags say which optional parts a completion has: enum ibv_wc_flags.
type CompletionFlags uint32

const (
	HasGRH         CompletionFlags = 1 << 0 // the first GRHBytes are the network header
	HasImmediate   CompletionFlags = 1 << 1
	HasInvalidated CompletionFlags = 1 << 3 // the peer invalidated one of our rkeys
)

// WorkCompletion is the outcome of one work request. It has the layout of struct ibv_wc. If the
// status is not Success, only ID, Status, VendorError and QPN are valid.
type WorkCompletion struct {
	ID          uint64
	Status      Status
	Kind        Kind
	VendorError uint32
	Length      uint32 // bytes received, or read by READ and atomics
	immediate   [4]byte
	QPN         uint32 // of our queue pair
	RemoteQPN   uint32 // of a datagram's sender
	Flags       CompletionFlags
	PKeyIndex   uint16
	RemoteLID   uint16
	SL          uint8
	PathBits    uint8
}

// Immediate returns the four bytes that came with the message, as the sender gave them.
func (c *WorkCompletion) Immediate() [4]byte { return c.immediate }

// SetImmediate is for providers. It sets the bytes that Immediate returns, or the rkey as
// Invalidate encodes it.
func (c *WorkCompletion) SetImmediate(b [4]byte) { c.immediate = b }

// Invalidated returns the rkey that the peer invalidated.
func (c *WorkCompletion) Invalidated() uint32 { return binary.NativeEndian.Uint32(c.immediate[:]) }

// Err returns nil for a success, else an *OpError.
func (c *WorkCompletion) Err() error {
	if c.Status == Success {
		return nil
	}
	return &OpError{QPN: c.QPN, Status: c.Status, VendorError: c.VendorError}
}

// Invalidate returns the Immediate of a SendRequest that invalidates an rkey.
func Invalidate(rkey uint32) (b [4]byte) {
	binary.NativeEndian.PutUint32(b[:], rkey)
	return b
}
