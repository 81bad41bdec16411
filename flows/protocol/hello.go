package protocol

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxFlow is the maximum length of a flow's name in bytes.
const MaxFlow = 63

// HelloLen is the length of a hello, in bytes.
const HelloLen = 128

// Hello describes each side to the other before the first message, as the hello of package rdma/connect:
//
//	offset  bytes
//	     0      4  "uHLO"
//	     4      1  version; at this offset in every version, so that each can refuse the others with a text
//	     5      1  role
//	     6      1  durability; 0 from a sender and where the role is not append
//	     7      1  0
//	     8      4  message
//	    12      4  window
//	    16      8  session
//	    24      8  next
//	    32      8  capabilities
//	    40      8  size
//	    48      4  align
//	    52      4  participant; 0 from a receiver
//	    56      8  0
//	    64     64  flow, and zeros: at least one
type Hello struct {
	// Role is the purpose of a connection.
	Role Role
	// Flow is the flow that the dialing side requests, and in the answer the flow that is served:
	// letters a to z, digits and "-", at most MaxFlow. Empty: any.
	Flow string
	// Message is the longest message that this side accepts, in bytes, header included.
	Message uint32
	// Window is the number of messages, from Next on, that the receiver accepts before its first
	// progress; or the number of requests that the server accepts at once.
	Window uint32
	// Durability is the meaning of a receiver's acknowledgement.
	Durability Durability
	// Session is the sender's session: random, never 0, and the same after a reconnect. The
	// receiver's answer repeats it.
	Session uint64
	// Next is the sequence that the receiver expects next in this session; 1 in a new session. From
	// a sender, it is the lowest sequence that it can still send; 0 from senders of earlier
	// releases.
	Next uint64
	// Capabilities are bits for optional features. A sender sets unknown bits to 0, and a
	// receiver ignores them.
	Capabilities uint64
	// Size is the size of the target in bytes. Offsets and lengths of requests are multiples of Align. Blocks only.
	Size  uint64
	Align uint32
	// Participant identifies one of several senders to a receiver that combines the messages of
	// all: from 1 on. 0 means none.
	Participant uint32
}

// CapabilityWrite is for the role append. From a sender, it says that the sender can write its
// messages into the receiver's memory (WRITE with immediate), and that its receives have room for
// MaxGrantLen bytes. From a receiver, it says that messages must arrive in this way and in no
// other, see [Grant].
const CapabilityWrite uint64 = 1 << 0

// CapabilityOrigin is for the role append, from a receiver. It says that messages may have an
// [Origin], and that the receiver accepts each message of an origin once.
const CapabilityOrigin uint64 = 1 << 1

// CapabilityStandby is for the role append. From a sender, it says that the sender waits until the receiver, a member
// of a group, leads it. From a receiver, it says that the receiver does not lead now. When it does, it sends another
// hello, as a text over TCP, in which next and window count.
const CapabilityStandby uint64 = 1 << 2

// CapabilityAsk is for the role append, from a sender. It says that the sender only asks which message the receiver
// expects next. A log answers when what it had at the question is as safe as its acknowledgements say.
const CapabilityAsk uint64 = 1 << 3

// CapabilityPaths is for the role append. From a sender, it says that the connection is one of several that its session
// has at the same time, each over a path of its own. From a receiver, it says that the receiver takes the messages of all
// of them, and restores their order. [Hello.Path] has a number beside it.
const CapabilityPaths uint64 = 1 << 4

// CapabilityProbe is for the role append, from a receiver. It says that a sender may post READs of no bytes, which the
// receiver's device answers, to find out whether it can be reached.
const CapabilityProbe uint64 = 1 << 5

// MaxPaths is the largest number of connections that a session has at the same time.
const MaxPaths = 4

// WithPath returns the capability with its number, which is in the upper half of the capabilities.
func WithPath(number uint32) uint64 { return CapabilityPaths | uint64(number)<<32 }

// Path returns the number beside [CapabilityPaths]. From a sender it is that of the path, below [MaxPaths]. From a receiver
// it is one that the receiver drew when it was opened, so that a sender can tell whether two paths lead to the same one.
// It is 0 without the capability.
func (h *Hello) Path() uint32 {
	if h.Capabilities&CapabilityPaths == 0 {
		return 0
	}
	return uint32(h.Capabilities >> 32)
}

// CapabilityRead is for the role channel. From a sender, it says that the sender takes acknowledgements from what readers
// have read on, which may be less than what has arrived. From a receiver, it says that Size is the first message that its
// readers have not read.
const CapabilityRead uint64 = 1 << 0

// CapabilityFetch is for the role replicate, from the member that dials. It says that this member leads
// the epoch, and fetches records that it lacks.
const CapabilityFetch uint64 = 1 << 0

// CapabilitySpread is for the role replicate, from both members. It says that the configuration of this member has
// path_mode: active: the followers of a leader prefer different paths.
const CapabilitySpread uint64 = 1 << 1

const (
	helloMagic = "uHLO"
	helloFree  = 56
	helloFlow  = 64
)

// Append appends the bytes of a hello. The error names an invalid field.
func (h *Hello) Append(b []byte) ([]byte, error) {
	if err := h.check(); err != nil {
		return b, fmt.Errorf("make a hello: %w", err)
	}
	n := len(b)
	b = append(b, make([]byte, HelloLen)...)
	f := b[n:]
	copy(f, helloMagic)
	f[versionAt], f[5], f[6] = Version, byte(h.Role), byte(h.Durability)
	be.PutUint32(f[8:], h.Message)
	be.PutUint32(f[12:], h.Window)
	be.PutUint64(f[16:], h.Session)
	be.PutUint64(f[24:], h.Next)
	be.PutUint64(f[32:], h.Capabilities)
	be.PutUint64(f[40:], h.Size)
	be.PutUint32(f[48:], h.Align)
	be.PutUint32(f[52:], h.Participant)
	copy(f[helloFlow:], h.Flow)
	return b, nil
}

// ParseHello parses a peer's hello. The error wraps BadVersion if the peer has another version,
// BadMagic if it speaks another protocol, and otherwise the reason. The result does not refer to b.
func ParseHello(b []byte) (Hello, error) {
	if err := foreign(b); err != nil {
		return Hello{}, fmt.Errorf("read the peer's hello: %w", err)
	}
	h := Hello{
		Role: Role(b[5]), Durability: Durability(b[6]), Message: be.Uint32(b[8:]), Window: be.Uint32(b[12:]), Session: be.Uint64(b[16:]),
		Next: be.Uint64(b[24:]), Capabilities: be.Uint64(b[32:]), Size: be.Uint64(b[40:]), Align: be.Uint32(b[48:]), Participant: be.Uint32(b[52:]),
	}
	name, rest, _ := bytes.Cut(b[helloFlow:HelloLen], []byte{0})
	h.Flow = string(name)
	if b[7] != 0 || zeros(b[helloFree:helloFlow]) != None || zeros(rest) != None {
		return Hello{}, fmt.Errorf("read the peer's hello: %w", BadReserved)
	}
	if err := h.check(); err != nil {
		return Hello{}, fmt.Errorf("read the peer's hello: %w", err)
	}
	return h, nil
}

// foreign refuses bytes that are not a hello of this version.
func foreign(b []byte) error {
	switch {
	case len(b) <= versionAt || string(b[:len(helloMagic)]) != helloMagic:
		return BadMagic
	case b[versionAt] != Version:
		return fmt.Errorf("%w: the peer speaks version %d and this program %d: use releases on both sides that have the same", BadVersion, b[versionAt], Version)
	case len(b) != HelloLen:
		return fmt.Errorf("%w: %d bytes instead of %d", BadLength, len(b), HelloLen)
	}
	return nil
}

// check refuses values that neither side may send.
func (h *Hello) check() error {
	switch {
	case h.Role < RoleAppend || h.Role > RoleTransfer: // it names the roles that clients have
		return fmt.Errorf("%w: role %d is neither append (1) nor blocks (2)", BadReserved, h.Role)
	case h.Durability != 0 && !h.Durability.known():
		return fmt.Errorf("%w: durability %d is none of received (1), written (2) and durable (3)", BadReserved, h.Durability)
	case h.Align&(h.Align-1) != 0:
		return fmt.Errorf("%w: alignment %d is no power of two", BadReserved, h.Align)
	}
	return checkFlow(h.Flow)
}

const nameBytes = "abcdefghijklmnopqrstuvwxyz0123456789-"

// checkFlow refuses an invalid flow name.
func checkFlow(name string) error {
	if len(name) > MaxFlow {
		return fmt.Errorf("%w: a flow's name of %d bytes is longer than %d", TooLong, len(name), MaxFlow)
	}
	if strings.Trim(name, nameBytes) != "" {
		return fmt.Errorf("%w: %q is no flow's name: those have letters a to z, digits and -", BadReserved, name)
	}
	return nil
}

// Role is the purpose of a connection.
type Role uint8

const (
	RoleAppend Role = 1 // messages from a sender, which dials, to a receiver
	RoleBlocks Role = 2 // requests from a client, which dials, to a server
	// RoleReplicate is for records of a group's log from a member to another, which dials. In its hello
	// Session is the epoch, Next the position of the first record that it wants, Participant its number,
	// and Window how many records it takes before it says more.
	RoleReplicate Role = 3
	// RoleChannel is for the messages of a channel, which the dialing side writes into the ring of the other. In its
	// hello Message is the bytes of a slot, Window the number of slots, Session the numbering of the messages, Next the
	// first message that it still has, and Size the last one. In the answer Next is the first message to write.
	RoleChannel Role = 4
	// RoleState is for a reader, which dials, of the memory of a state. The answer grants it.
	RoleState Role = 5
	// RoleTransfer is for a file or device, whose sender dials. In its hello Message is the longest piece, Session the
	// transfer, and Size the bytes of the file. In the answer Message is the longest piece, Window the number of pieces
	// at once, and Next the first byte to send. After both hellos come more bytes: docs/how-to/transfer.md.
	RoleTransfer Role = 6
)

func (r Role) String() string {
	switch r {
	case RoleAppend:
		return "append"
	case RoleState:
		return "state"
	case RoleBlocks:
		return "blocks"
	case RoleReplicate:
		return "replicate"
	case RoleChannel:
		return "channel"
	case RoleTransfer:
		return "transfer"
	}
	return "unknown"
}

// Durability is the meaning of a receiver's acknowledgement.
type Durability uint8

const (
	Received Durability = 1 // the message is in the receiver's memory
	Written  Durability = 2 // the disk has accepted it; a power cut may lose it
	Durable  Durability = 3 // it is on stable storage
)

var durabilities = [...]string{"", "received", "written", "durable"}

func (d Durability) String() string {
	if d.known() {
		return durabilities[d]
	}
	return "unknown"
}

func (d Durability) known() bool { return d >= Received && d <= Durable }

// ParseDurability is the reverse of String.
func ParseDurability(s string) (Durability, error) {
	for d := Received; d <= Durable; d++ {
		if s == durabilities[d] {
			return d, nil
		}
	}
	return 0, fmt.Errorf("durability %q is none of received, written and durable", s)
}
