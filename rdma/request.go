package rdma

import (
	"encoding/binary"
	"fmt"
)

// Op is what a send work request does: enum ibv_wr_opcode, with its numbers.
type Op uint32

const (
	Write           Op = 0 // RDMA WRITE into the peer's memory
	WriteImmediate  Op = 1 // the same, and it takes one of the peer's receives
	Send            Op = 2 // into a receive that the peer posted
	SendImmediate   Op = 3
	Read            Op = 4 // RDMA READ of the peer's memory
	CompareSwap     Op = 5 // of eight bytes of the peer's
	FetchAdd        Op = 6
	LocalInvalidate Op = 7 // of a memory window of ours
	SendInvalidate  Op = 9 // and one of the peer's grants ends
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
	Fence     Flags = 1 << 0 // not before the READs and atomics in front of it are complete
	Signaled  Flags = 1 << 1 // its success is a completion; a failure is one anyhow
	Solicited Flags = 1 << 2 // the peer's completion wakes those that wait for solicited ones only
	Inline    Flags = 1 << 3 // the bytes are copied when it is posted, from memory registered whole
)

// SGE is one scatter/gather element, struct ibv_sge.
type SGE struct {
	Addr   uint64 // in the registration: for a whole region, a frame's address
	Length uint32 // bytes
	LKey   uint32
}

// SendRequest is one work request of a send queue. The local memory it reads (or, for
// READ and atomics, writes) is its next SGEs elements of the list posted with it. It
// belongs to the device from the time it is posted to its completion, or to that of a later signaled one.
// The zero value is a WRITE of nothing.
type SendRequest struct {
	ID    uint64 // comes back in the completion
	Op    Op
	Flags Flags
	SGEs  uint32 // how many elements of the list are its own
	// Immediate is sent verbatim with the operations that have it; of SendInvalidate and
	// LocalInvalidate it is the rkey, see Invalidate.
	Immediate  [4]byte
	RemoteAddr uint64 // where in the peer's memory; for atomics a multiple of 8
	RKey       uint32 // the peer's grant
	// Of a datagram: who gets it.
	RemoteQPN  uint32
	RemoteQKey uint32
	Handle     uint32 // AddressHandle.ID
	// Of atomics: CompareSwap stores Swap where it finds Compare, FetchAdd adds Compare.
	Compare uint64
	Swap    uint64
}

// ReceiveRequest is one work request of a receive queue, for one message, into its next
// SGEs elements of the list posted with it.
type ReceiveRequest struct {
	ID   uint64 // comes back in the completion
	SGEs uint32
	_    uint32
}

// GRHBytes is how many bytes in front of a received datagram are its network header: for
// IPv6 the header, for IPv4 twenty bytes of anything and the header.
const GRHBytes = 40

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

// batchSize is how many completions one call polls at most.
const batchSize = 64

// completions are those of one queue that were polled and not used yet.
type completions struct {
	queue CompletionQueue
	buf   [batchSize]WorkCompletion
	at, n int
	fresh bool  // some came since the queue was armed
	err   error // the queue's, once it is gone
}

// next is at most so many completions, which are used with that. It polls when it has none
// left.
func (c *completions) next(most int) []WorkCompletion {
	if c.at == c.n {
		c.fill()
	}
	n := min(most, c.n-c.at)
	c.at += n
	return c.buf[c.at-n : c.at]
}

// fill polls, and reports whether there is something to use.
func (c *completions) fill() bool {
	if c.left() {
		return true
	}
	n, err := c.queue.Poll(c.buf[:])
	if err != nil {
		c.err = err
	}
	c.at, c.n = 0, n
	c.fresh = c.fresh || n > 0
	return n > 0
}

// last reports that all are used of a poll that left room: there was no more then.
func (c *completions) last() bool { return c.at == c.n && c.n < len(c.buf) }

// left reports whether some were polled and not used.
func (c *completions) left() bool { return c.at < c.n }
