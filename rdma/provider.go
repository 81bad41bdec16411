package rdma

import (
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// ErrUnsupported says that the device, its driver or this build lacks something; the
// text names it and what would have it.
var ErrUnsupported = errors.New("not supported")

// Provider is an implementation of this vocabulary.
type Provider interface {
	// Name is the provider's in a config and in metrics.
	Name() string
	// Devices lists what there is. Where the provider itself cannot work here the error says
	// what is missing and how to get it.
	Devices() ([]string, error)
	// Open opens a device by name. The error for a name that is not there lists those that are.
	Open(name string) (Device, error)
}

// Device is an open RDMA device.
type Device interface {
	Name() string
	Capabilities() Capabilities
	// Port asks for a port's state; they are numbered from 1.
	Port(number uint8) (Port, error)
	// GIDs lists the places of a port's GID table that are in use.
	GIDs(port uint8) ([]GIDEntry, error)
	NewProtectionDomain() (ProtectionDomain, error)
	// QueuePairs is how many queue pairs made from the device are open. Any goroutine may ask.
	QueuePairs() int
	// NewCompletionQueue makes a queue for at least that many completions.
	NewCompletionQueue(CompletionQueueConfig) (CompletionQueue, error)
	// EventFD polls readable when NextEvent has something. It does not block.
	EventFD() int
	// NextEvent takes one asynchronous event, and says whether there was one. One goroutine
	// calls it at a time.
	NextEvent() (Event, bool, error)
	Close() error
}

// Capabilities are a device's limits: struct ibv_device_attr.
type Capabilities struct {
	Firmware             string
	NodeGUID             uint64
	VendorID, PartID     uint32
	Ports                uint8
	MaxQueuePairs        int
	MaxWorkRequests      int // of one queue
	MaxSGEs              int // of one work request
	MaxSGEsRead          int // of a READ
	MaxCompletionQueues  int
	MaxCompletions       int // of one completion queue
	MaxMemoryRegions     int
	MaxMemoryRegion      uint64 // bytes
	MaxReads             int    // READs and atomics outstanding, of ours on a queue pair
	MaxRemoteReads       int    // the peer's
	MaxSharedQueues      int
	MaxSharedRequests    int
	MaxSharedSGEs        int
	MaxMemoryWindows     int
	Atomics              bool // with other atomics of the same device at least
	WindowsType2         bool
	LocalAcknowledgement uint8 // delay: 4.096 µs << it
}

// LinkLayer is what lies below a port.
type LinkLayer uint8

const (
	LinkUnknown    LinkLayer = 0
	LinkInfiniBand LinkLayer = 1
	LinkEthernet   LinkLayer = 2
)

func (l LinkLayer) String() string {
	switch l {
	case LinkInfiniBand:
		return "InfiniBand"
	case LinkEthernet:
		return "Ethernet"
	}
	return "unknown"
}

// Port is the state of a port: struct ibv_port_attr.
type Port struct {
	Number     uint8
	Active     bool   // the link carries
	State      string // as libibverbs calls it: DOWN, INIT, ARMED, ACTIVE
	LinkLayer  LinkLayer
	MaxMTU     MTU
	ActiveMTU  MTU
	MaxMessage uint32 // bytes
	LID        uint16
	SubnetLID  uint16 // the subnet manager's
	GIDs       int    // places in the GID table
	PKeys      int    // places in the P_Key table
	Width      uint8  // enum ibv_port_width
	Speed      uint8
}

// ProtectionDomain holds what may be used together.
type ProtectionDomain interface {
	Device() Device
	// Register registers a whole region: address 0 of it is the first byte of the
	// region's data. The region has the domain among its registrations until Close.
	Register(r *umem.Region, a Access) (MemoryRegion, error)
	// RegisterPart registers length bytes of the region from addr, under the same addresses:
	// what a peer is granted where there are no memory windows.
	RegisterPart(r *umem.Region, addr, length uint64, a Access) (MemoryRegion, error)
	// NewWindow makes a memory window (type 2), which QueuePair.Bind binds. The error is ErrUnsupported where the device has none.
	NewWindow() (MemoryWindow, error)
	NewQueuePair(QueuePairConfig) (QueuePair, error)
	NewSharedReceiveQueue(SharedReceiveQueueConfig) (SharedReceiveQueue, error)
	// NewAddressHandle makes the way to a peer for datagrams.
	NewAddressHandle(Address) (AddressHandle, error)
	Close() error
}

// MemoryRegion is memory registered with a device.
type MemoryRegion interface {
	LKey() uint32 // for our scatter/gather elements
	RKey() uint32 // for a peer's requests, as far as Access allows
	Addr() uint64 // first address, of both keys
	Length() uint64
	Access() Access
	// Close ends the registration; requests under its keys fail from then on.
	Close() error
}

// MemoryWindow is a part of a MemoryRegion that a peer may reach while it is bound.
type MemoryWindow interface {
	// RKey is what the peer uses. It changes with each bind.
	RKey() uint32
	Close() error
}

// AddressHandle is the way to a peer for datagrams.
type AddressHandle interface {
	// ID is what a SendRequest says.
	ID() uint32
	Close() error
}

// CompletionQueueConfig says what completion queue to make.
type CompletionQueueConfig struct {
	Depth int
	// Events says that the queue is to be waited for: FD, Arm and Acknowledge.
	Events bool
	Vector int // completion vector, which on a card stands for an interrupt's CPU
}

// CompletionQueue gives the completions of the queue pairs it was given to.
type CompletionQueue interface {
	Depth() int
	// Poll fills dst with completions and returns how many there were. It does not block or
	// allocate. The error says that the device is gone.
	Poll(dst []WorkCompletion) (int, error)
	// Spin is Poll that waits for the first completion by polling, for at most so long: with
	// a bound of microseconds it costs one call where Poll would cost many.
	Spin(dst []WorkCompletion, limit time.Duration) (int, error)
	// Arm asks for one event at the next completion, or (solicited) at the next that its
	// sender marked so or that failed. What came before Arm gives no event: poll again after it.
	Arm(solicited bool) error
	// FD polls readable when an event came, and is -1 without Events.
	FD() int
	// Acknowledge takes the events that came and returns how many; without one it returns
	// 0 at once.
	Acknowledge() (int, error)
	// Resize changes the depth; the error is ErrUnsupported where the device cannot.
	Resize(depth int) error
	Close() error
}

// QueuePairConfig says what queue pair to make.
type QueuePairConfig struct {
	Transport   Transport
	SendCQ      CompletionQueue
	ReceiveCQ   CompletionQueue
	Shared      SharedReceiveQueue // instead of a receive queue of its own
	SendDepth   int                // work requests
	RecvDepth   int
	SendSGEs    int // elements of one request; at least 1
	RecvSGEs    int
	InlineBytes int  // the most that Inline is wanted for
	SignalAll   bool // every send request is Signaled
	// Loans is how many frames may be on loan at once: SENDs are handed on in the frames they arrived in, there are no
	// receives, and the queue pair is a Lender. 0: SENDs go into receives that are posted. The error is ErrUnsupported
	// where the device cannot.
	Loans int
}

// QueuePair is one end of a connection, or of datagrams.
type QueuePair interface {
	QPN() uint32             // 24 bits
	Config() QueuePairConfig // as granted
	// State is the state as the device has it.
	State() (State, error)
	// Modify changes the state, or attributes within one. Changes that CheckChange refuses do not reach the device.
	Modify(a Attributes, given Mask) error
	// Query asks the device for the attributes.
	Query() (Attributes, error)
	// PostSend posts requests, in order; each takes its elements from the front of what
	// its predecessors left of sges. It returns how many the device took: those beyond stay the
	// caller's, and the error says why the next was refused. It does not allocate unless it fails.
	PostSend(requests []SendRequest, sges []SGE) (int, error)
	// PostReceive is PostSend for receives.
	PostReceive(requests []ReceiveRequest, sges []SGE) (int, error)
	// Bind posts a request to bind a window to part of a registration that has
	// BindWindows, with rights that a peer of this queue pair gets. The window's rkey is the new one at
	// once; its completion is BindDone.
	Bind(id uint64, w MemoryWindow, m MemoryRegion, addr, length uint64, a Access, f Flags) error
	// Close destroys the queue pair. What is outstanding is never completed: its memory is
	// the caller's again when Close returns.
	Close() error
}

// SharedReceiveQueueConfig says what shared receive queue to make.
type SharedReceiveQueueConfig struct {
	Depth int
	SGEs  int
}

// SharedReceiveQueue has receives for the messages of several queue pairs.
type SharedReceiveQueue interface {
	Config() SharedReceiveQueueConfig // as granted
	PostReceive(requests []ReceiveRequest, sges []SGE) (int, error)
	// Limit asks for one event SharedQueueLimit when fewer than n receives are left.
	Limit(n int) error
	Close() error
}
