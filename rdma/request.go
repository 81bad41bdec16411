package rdma

import "fmt"

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
