package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// ErrUnsupported means that the device, its driver or this build lacks something. The text names it
// and the remedy.
var ErrUnsupported = errors.New("not supported")

// Provider is an implementation of these interfaces.
type Provider interface {
	// Name is the provider's name in configurations and metrics.
	Name() string
	// Devices lists the devices. If the provider cannot work on this machine the error says
	// what is missing and how to get it.
	Devices() ([]string, error)
	// Open opens a device by name. If there is none the error lists those that exist.
	Open(name string) (Device, error)
}

// Device is an open RDMA device.
type Device interface {
	Name() string
	Capabilities() Capabilities
	// Port returns the state of a port. Ports are numbered from 1.
	Port(number uint8) (Port, error)
	// GIDs returns the entries of a port's GID table that are in use.
	GIDs(port uint8) ([]GIDEntry, error)
	NewProtectionDomain() (ProtectionDomain, error)
	// QueuePairs returns how many queue pairs of the device are open. Any goroutine may call it.
	QueuePairs() int
	// NewCompletionQueue makes a queue for at least that many completions.
	NewCompletionQueue(CompletionQueueConfig) (CompletionQueue, error)
	// EventFD returns a descriptor that polls readable when NextEvent has an event.
	EventFD() int
	// NextEvent returns one asynchronous event, and whether there was one. It does not block. One goroutine
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
	MaxReads             int    // our outstanding READs and atomics of a queue pair
	MaxRemoteReads       int    // the peer's
	MaxSharedQueues      int
	MaxSharedRequests    int
	MaxSharedSGEs        int
	MaxMemoryWindows     int
	Atomics              bool // atomic at least with respect to the same device
	WindowsType2         bool
	LocalAcknowledgement uint8 // delay: 4.096 µs << this
}

// LinkLayer is the link layer of a port.
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
	GIDs       int    // entries of the GID table
	PKeys      int    // entries of the P_Key table
	Width      uint8  // enum ibv_port_width
	Speed      uint8
}

// ProtectionDomain groups objects that may be used together.
type ProtectionDomain interface {
	Device() Device
	// Register registers a whole region: its address 0 is the first byte of the region's data.
	// The region counts the domain among its registrations until Close.
	Register(r *umem.Region, a Access) (MemoryRegion, error)
	// RegisterPart registers length bytes of the region from addr, with the same addresses:
	// for grants on devices without memory windows.
	RegisterPart(r *umem.Region, addr, length uint64, a Access) (MemoryRegion, error)
	// NewWindow makes a memory window of type 2, which QueuePair.Bind binds. The error is ErrUnsupported if the device has none.
	NewWindow() (MemoryWindow, error)
	NewQueuePair(QueuePairConfig) (QueuePair, error)
	NewSharedReceiveQueue(SharedReceiveQueueConfig) (SharedReceiveQueue, error)
	// NewAddressHandle makes an address handle for datagrams to a peer.
	NewAddressHandle(Address) (AddressHandle, error)
	Close() error
}

// MemoryRegion is memory registered with a device.
type MemoryRegion interface {
	LKey() uint32 // for our scatter/gather elements
	RKey() uint32 // for a peer's requests, within Access
	Addr() uint64 // first address, of both keys
	Length() uint64
	Access() Access
	// Close ends the registration. Requests with its keys fail from then on.
	Close() error
}

// MemoryWindow is a part of a MemoryRegion that a peer may access while the window is bound.
type MemoryWindow interface {
	// RKey returns the key for the peer. It changes with each bind.
	RKey() uint32
	Close() error
}

// AddressHandle is the destination of datagrams.
type AddressHandle interface {
	// ID returns the number for SendRequest.Handle.
	ID() uint32
	Close() error
}

// CompletionQueueConfig says how to make a completion queue.
type CompletionQueueConfig struct {
	Depth int
	// Events enables FD, Arm and Acknowledge.
	Events bool
	Vector int // completion vector, which selects the interrupt of a card
}

// CompletionQueue returns the completions of the queue pairs made with it.
type CompletionQueue interface {
	Depth() int
	// Poll fills dst with completions and returns their number. It does not block or
	// allocate. The error says that the device is gone.
	Poll(dst []WorkCompletion) (int, error)
	// Spin polls until there is a completion or the limit has passed: with
	// a limit of microseconds it replaces many calls of Poll by one.
	Spin(dst []WorkCompletion, limit time.Duration) (int, error)
	// Arm requests one event at the next completion. With solicited, only a completion that its
	// sender marked as solicited, or that failed, gives the event. Earlier completions give no
	// event: poll again after Arm.
	Arm(solicited bool) error
	// FD polls readable when there is an event; -1 without Events.
	FD() int
	// Acknowledge consumes the events and returns their number; without one it returns
	// 0 at once.
	Acknowledge() (int, error)
	// Resize changes the depth. The error is ErrUnsupported if the device cannot.
	Resize(depth int) error
	Close() error
}

// QueuePairConfig says how to make a queue pair.
type QueuePairConfig struct {
	Transport   Transport
	SendCQ      CompletionQueue
	ReceiveCQ   CompletionQueue
	Shared      SharedReceiveQueue // instead of a receive queue of its own
	SendDepth   int                // work requests
	RecvDepth   int
	SendSGEs    int // elements of one request; at least 1
	RecvSGEs    int
	InlineBytes int  // the longest request with Inline
	SignalAll   bool // every send request is Signaled
	// Loans is how many frames may be on loan at a time. The queue pair is then a Lender: it
	// delivers SENDs in the frames in which they arrived, and has no receives. 0: SENDs go into
	// posted receives. The error is ErrUnsupported if the device cannot.
	Loans int
}

// QueuePair is one end of a connection, or sends and receives datagrams.
type QueuePair interface {
	QPN() uint32             // 24 bits
	Config() QueuePairConfig // as granted
	// State returns the device's state of the queue pair.
	State() (State, error)
	// Modify changes the state, or attributes within one. Changes that CheckChange refuses do not reach the device.
	Modify(a Attributes, given Mask) error
	// Query returns the device's attributes of the queue pair.
	Query() (Attributes, error)
	// PostSend posts requests in order. Each takes its elements from the front of those that
	// its predecessors left of sges. It returns the number of requests that the device took.
	// The caller keeps the others, and the error says why the device refused the next one. It
	// does not allocate unless it fails.
	PostSend(requests []SendRequest, sges []SGE) (int, error)
	// PostReceive is PostSend for receives.
	PostReceive(requests []ReceiveRequest, sges []SGE) (int, error)
	// Bind posts a request that binds a window to part of a registration with
	// BindWindows, and gives the rights to the peer of this queue pair. The window has its new rkey at
	// once; its completion is BindDone.
	Bind(id uint64, w MemoryWindow, m MemoryRegion, addr, length uint64, a Access, f Flags) error
	// Close destroys the queue pair. Outstanding requests never complete: when Close returns,
	// the caller owns their memory again.
	Close() error
}

// SharedReceiveQueueConfig says how to make a shared receive queue.
type SharedReceiveQueueConfig struct {
	Depth int
	SGEs  int
}

// SharedReceiveQueue holds the receives of several queue pairs.
type SharedReceiveQueue interface {
	Config() SharedReceiveQueueConfig // as granted
	PostReceive(requests []ReceiveRequest, sges []SGE) (int, error)
	// Limit asks for one event SharedQueueLimit when fewer than n receives are left.
	Limit(n int) error
	Close() error
}

// GID is the address of a port. For RoCE v2 it is an IPv6 address, or an IPv4-mapped one.
type GID [16]byte

// GIDOf returns the GID of an IP address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the GID as an IP address, as an IPv4 address if it is mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether the GID is an empty entry.
func (g GID) IsZero() bool { return g == GID{} }

// Is4 reports whether the GID is an IPv4 address.
func (g GID) Is4() bool { return g.Addr().Is4() }

// IsLinkLocal reports whether the address is valid on one link only.
func (g GID) IsLinkLocal() bool { return g.Addr().IsLinkLocalUnicast() }

func (g GID) String() string { return g.Addr().String() }

// GIDType is the format of packets with a GID: enum ibv_gid_type.
type GIDType uint32

const (
	InfiniBand GIDType = 0
	RoCE1      GIDType = 1 // ethertype 0x8915: one link only
	RoCE2      GIDType = 2 // UDP port 4791
)

func (t GIDType) String() string {
	switch t {
	case InfiniBand:
		return "InfiniBand"
	case RoCE1:
		return "RoCE v1"
	case RoCE2:
		return "RoCE v2"
	}
	return fmt.Sprintf("GID type %d", uint32(t))
}

// GIDEntry is an entry of a port's GID table that is in use.
type GIDEntry struct {
	GID   GID
	Index int
	Type  GIDType
	// Interface is the index of the network interface whose address it is; 0: none.
	Interface int
}

// EventKind is an asynchronous event: enum ibv_event_type, with its numbers.
type EventKind uint32

const (
	CompletionQueueError EventKind = 0
	QueuePairFatal       EventKind = 1
	QueuePairRequest     EventKind = 2
	QueuePairAccess      EventKind = 3
	Established          EventKind = 4 // a message arrived at a queue pair in RTR
	SendQueueDrained     EventKind = 5
	DeviceFatal          EventKind = 8
	PortActive           EventKind = 9
	PortError            EventKind = 10
	LIDChange            EventKind = 11
	PKeyChange           EventKind = 12
	SharedQueueError     EventKind = 14
	SharedQueueLimit     EventKind = 15
	LastReceive          EventKind = 16 // of a queue pair with a shared queue that is in error
	GIDChange            EventKind = 18
)

var eventNames = [...]string{"completion queue error", "queue pair fatal", "queue pair request error", "queue pair access error",
	"connection established", "send queue drained", "path migrated", "path migration error", "device fatal", "port active", "port error",
	"LID change", "P_Key change", "subnet manager change", "shared receive queue error", "shared receive queue limit reached",
	"last work request reached", "client reregister", "GID change", "work queue fatal"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event %d", uint32(k))
}

// Event is something that happened to a device or to an object made from it.
type Event struct {
	Kind EventKind
	QPN  uint32 // of events of a queue pair
	Port uint8  // of events of a port
}

func (e Event) String() string {
	switch e.Kind {
	case QueuePairFatal, QueuePairRequest, QueuePairAccess, Established, SendQueueDrained, LastReceive:
		return fmt.Sprintf("%v: queue pair %d", e.Kind, e.QPN)
	case PortActive, PortError, LIDChange, PKeyChange, GIDChange:
		return fmt.Sprintf("%v: port %d", e.Kind, e.Port)
	}
	return e.Kind.String()
}

// Errno returns the errno that a frame has for the status, see umem.Frame.Err. The cause of a queue
// pair's failure says more: msg.Port.Cause.
func (s Status) Errno() unix.Errno {
	switch s {
	case Success:
		return 0
	case WorkFlushed:
		return unix.ECANCELED
	case LocalLength:
		return unix.EMSGSIZE
	case LocalProtection, LocalAccess:
		return unix.EFAULT
	case LocalQPOperation, RemoteInvalidRequest:
		return unix.EINVAL
	case RemoteAccess:
		return unix.EACCES
	case RetryExceeded, ResponseTimeout:
		return unix.ETIMEDOUT
	case ReceiverNotReadyExceeded:
		return unix.ENOBUFS
	case RemoteOperation, RemoteAborted:
		return unix.EREMOTEIO
	}
	return unix.EIO
}

// Status is how a work request ended: enum ibv_wc_status, with its numbers.
type Status uint32

const (
	Success                  Status = 0
	LocalLength              Status = 1
	LocalQPOperation         Status = 2
	LocalEEContext           Status = 3
	LocalProtection          Status = 4
	WorkFlushed              Status = 5
	WindowBind               Status = 6
	BadResponse              Status = 7
	LocalAccess              Status = 8
	RemoteInvalidRequest     Status = 9
	RemoteAccess             Status = 10
	RemoteOperation          Status = 11
	RetryExceeded            Status = 12
	ReceiverNotReadyExceeded Status = 13
	LocalRDDViolation        Status = 14
	RemoteInvalidRDRequest   Status = 15
	RemoteAborted            Status = 16
	InvalidEEContext         Status = 17
	InvalidEEContextState    Status = 18
	Fatal                    Status = 19
	ResponseTimeout          Status = 20
	General                  Status = 21
	Statuses                        = 22 // number of statuses
)

// statusTexts have the name of libibverbs, what it means, and what to check.
var statusTexts = [Statuses]struct{ name, means, check string }{
	Success:                  {"IBV_WC_SUCCESS", "success", ""},
	LocalLength:              {"IBV_WC_LOC_LEN_ERR", "a message is longer than the receive for it, or than the transport carries", "the size of posted receives and the path MTU"},
	LocalQPOperation:         {"IBV_WC_LOC_QP_OP_ERR", "the queue pair cannot do that", "that the transport has the operation, the number of scatter/gather elements, and READs and atomics allowed at once (max_rd_atomic)"},
	LocalEEContext:           {"IBV_WC_LOC_EEC_OP_ERR", "an end-to-end context is in error", ""},
	LocalProtection:          {"IBV_WC_LOC_PROT_ERR", "local memory is not registered for this", "the lkey, and that address and length lie within its registration"},
	WorkFlushed:              {"IBV_WC_WR_FLUSH_ERR", "flushed: the queue pair was in error before", "the first error of the queue pair, which is the cause"},
	WindowBind:               {"IBV_WC_MW_BIND_ERR", "a memory window was not bound", "that the registration allows windows, and the rights asked for"},
	BadResponse:              {"IBV_WC_BAD_RESP_ERR", "the peer's answer is invalid", "the peer"},
	LocalAccess:              {"IBV_WC_LOC_ACCESS_ERR", "the peer's WRITE with immediate was refused here", "the grant the peer used"},
	RemoteInvalidRequest:     {"IBV_WC_REM_INV_REQ_ERR", "the peer refused the request as invalid", "that its receives are long enough, that its queue pair allows the operation, and that an atomic's address is a multiple of 8"},
	RemoteAccess:             {"IBV_WC_REM_ACCESS_ERR", "the peer refused access to its memory", "the rkey, that the grant is not revoked, its rights, and that address and length lie within it"},
	RemoteOperation:          {"IBV_WC_REM_OP_ERR", "the peer could not do it", "the peer's log"},
	RetryExceeded:            {"IBV_WC_RETRY_EXC_ERR", "the peer does not answer", "that it is alive and its link is up, its queue pair number and GID, and the MTU of the path"},
	ReceiverNotReadyExceeded: {"IBV_WC_RNR_RETRY_EXC_ERR", "the peer has no receive posted", "that it posts receives as fast as it is sent to, and rnr_retry"},
	LocalRDDViolation:        {"IBV_WC_LOC_RDD_VIOL_ERR", "reliable datagram domain violation", ""},
	RemoteInvalidRDRequest:   {"IBV_WC_REM_INV_RD_REQ_ERR", "invalid reliable datagram request", ""},
	RemoteAborted:            {"IBV_WC_REM_ABORT_ERR", "the peer aborted it", "the peer's log"},
	InvalidEEContext:         {"IBV_WC_INV_EECN_ERR", "invalid end-to-end context number", ""},
	InvalidEEContextState:    {"IBV_WC_INV_EEC_STATE_ERR", "invalid end-to-end context state", ""},
	Fatal:                    {"IBV_WC_FATAL_ERR", "the device failed", "the kernel's log"},
	ResponseTimeout:          {"IBV_WC_RESP_TIMEOUT_ERR", "the peer's answer did not come in time", "the peer"},
	General:                  {"IBV_WC_GENERAL_ERR", "something else failed", "the vendor's error code and the kernel's log"},
}

func (s Status) String() string {
	if s < Statuses {
		return statusTexts[s].name
	}
	return fmt.Sprintf("completion status %d", uint32(s))
}

// Meaning returns what happened in a few words, and what to check. Both may be empty.
func (s Status) Meaning() (means, check string) {
	if s < Statuses {
		return statusTexts[s].means, statusTexts[s].check
	}
	return "", ""
}

// Error makes a Status a target for errors.Is: errors.Is(err, rdma.RemoteAccess).
func (s Status) Error() string { return s.String() }

// OpError is a failed work request.
type OpError struct {
	QPN         uint32
	Status      Status
	VendorError uint32
}

func (e *OpError) Error() string {
	means, check := e.Status.Meaning()
	text := fmt.Sprintf("queue pair %d: %v", e.QPN, e.Status)
	if means != "" {
		text += ": " + means
	}
	if check != "" {
		text += " (check " + check + ")"
	}
	if e.VendorError != 0 {
		text += fmt.Sprintf(" [vendor error 0x%x]", e.VendorError)
	}
	return text
}

// Unwrap returns the status.
func (e *OpError) Unwrap() error { return e.Status }
