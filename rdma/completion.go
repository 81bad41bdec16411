package rdma

import (
	"encoding/binary"
	"fmt"
)

// Kind is what a completion completes: enum ibv_wc_opcode, with its numbers. It means
// something only where the status is Success.
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

// CompletionFlags say what of a completion is there: enum ibv_wc_flags.
type CompletionFlags uint32

const (
	HasGRH         CompletionFlags = 1 << 0 // the first GRHBytes are the network header
	HasImmediate   CompletionFlags = 1 << 1
	HasInvalidated CompletionFlags = 1 << 3 // the peer ended one of our grants
)

// WorkCompletion says how one work request ended. It has the layout of struct ibv_wc. Of
// one that did not end well only ID, Status, VendorError and QPN are good.
type WorkCompletion struct {
	ID          uint64
	Status      Status
	Kind        Kind
	VendorError uint32
	Length      uint32 // bytes received, or read by READ and atomics
	immediate   [4]byte
	QPN         uint32 // of our queue pair
	RemoteQPN   uint32 // who sent a datagram
	Flags       CompletionFlags
	PKeyIndex   uint16
	RemoteLID   uint16
	SL          uint8
	PathBits    uint8
}

// Immediate is the four bytes that came with the message, as the sender gave them.
func (c *WorkCompletion) Immediate() [4]byte { return c.immediate }

// SetImmediate is for providers: the bytes that Immediate returns, or the rkey as Invalidate
// gives it.
func (c *WorkCompletion) SetImmediate(b [4]byte) { c.immediate = b }

// Invalidated is the rkey of the grant that the peer ended.
func (c *WorkCompletion) Invalidated() uint32 { return binary.NativeEndian.Uint32(c.immediate[:]) }

// Err is nil for a success, and else an *OpError.
func (c *WorkCompletion) Err() error {
	if c.Status == Success {
		return nil
	}
	return &OpError{QPN: c.QPN, Status: c.Status, VendorError: c.VendorError}
}

// Invalidate is the Immediate of a SendRequest that invalidates an rkey.
func Invalidate(rkey uint32) (b [4]byte) {
	binary.NativeEndian.PutUint32(b[:], rkey)
	return b
}
