package rdma

import (
	"errors"
	"fmt"
	"strings"
)

// Mask says which fields of Attributes are set: enum ibv_qp_attr_mask.
type Mask uint32

const (
	MaskState          Mask = 1 << 0
	MaskCurrentState   Mask = 1 << 1
	MaskAccess         Mask = 1 << 3
	MaskPKeyIndex      Mask = 1 << 4
	MaskPort           Mask = 1 << 5
	MaskQKey           Mask = 1 << 6
	MaskAddress        Mask = 1 << 7
	MaskPathMTU        Mask = 1 << 8
	MaskTimeout        Mask = 1 << 9
	MaskRetries        Mask = 1 << 10
	MaskRNRRetries     Mask = 1 << 11
	MaskReceivePSN     Mask = 1 << 12
	MaskMaxReads       Mask = 1 << 13
	MaskMinRNRTimer    Mask = 1 << 15
	MaskSendPSN        Mask = 1 << 16
	MaskMaxRemoteReads Mask = 1 << 17
	MaskRemoteQPN      Mask = 1 << 20
	maskNames               = "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU TIMEOUT RETRY_CNT RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN"
)

// Attributes are the attributes of a queue pair that change with its state: struct ibv_qp_attr.
type Attributes struct {
	// State is the state of a queue pair: enum ibv_qp_state, with its numbers.
	State        State
	CurrentState State
	// Access is rights to registered memory, and what a queue pair lets its peer do: enum
	// ibv_access_flags. A peer can do what both allow.
	Access    Access // what the peer may do
	PKeyIndex uint16
	Port      uint8
	QKey      uint32 // of datagrams
	// Address is the destination of a peer's packets: struct ibv_ah_attr.
	Address     Address
	PathMTU     MTU
	Timeout     uint8  // for an ACK: 4.096 µs << Timeout; 0: no timeout
	Retries     uint8  // at most 7, before RetryExceeded
	RNRRetries  uint8  // before ReceiverNotReadyExceeded; 7: no limit
	MinRNRTimer uint8  // how long a sender waits after receiver-not-ready, IBTA table 45
	SendPSN     uint32 // 24 bits
	ReceivePSN  uint32 // the peer's SendPSN
	RemoteQPN   uint32
	// MaxReads is how many READs and atomics of ours may be outstanding, MaxRemoteReads how many of the peer's.
	MaxReads, MaxRemoteReads uint8
}

// CheckRanges refuses numbers that do not fit their fields of a packet or of the device. Some of
// them come from a peer. A provider calls it before it uses the device.
func (a *Attributes) CheckRanges(given Mask) error {
	const mask24 = 1<<24 - 1
	var errs []error
	for _, f := range []struct {
		of        Mask
		name      string
		got, most uint32
	}{
		{MaskRemoteQPN, "RemoteQPN", a.RemoteQPN, mask24}, {MaskSendPSN, "SendPSN", a.SendPSN, mask24},
		{MaskReceivePSN, "ReceivePSN", a.ReceivePSN, mask24}, {MaskTimeout, "Timeout", uint32(a.Timeout), 31},
		{MaskRetries, "Retries", uint32(a.Retries), 7}, {MaskRNRRetries, "RNRRetries", uint32(a.RNRRetries), 7},
		{MaskMinRNRTimer, "MinRNRTimer", uint32(a.MinRNRTimer), 31},
	} {
		if given&f.of != 0 && f.got > f.most {
			errs = append(errs, fmt.Errorf("%s %#x: the most is %#x", f.name, f.got, f.most))
		}
	}
	return errors.Join(errs...)
}

// Address is the path to a peer: struct ibv_ah_attr.
type Address struct {
	GID          GID // of the peer; zero: by LID alone, on one InfiniBand subnet
	GIDIndex     uint16
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	LID          uint16 // of the peer, on InfiniBand
	SL           uint8
	PathBits     uint8
	StaticRate   uint8
	Port         uint8 // of our device
}

// State is the state of a queue pair: enum ibv_qp_state, with its numbers.
type State uint32

const (
	Reset          State = 0 // newly made
	Init           State = 1 // receives may be posted
	ReadyToReceive State = 2 // RTR
	ReadyToSend    State = 3 // RTS
	SendDrained    State = 4 // SQD: earlier requests complete, new ones wait
	SendError      State = 5 // SQE: a send of UC or UD failed; receiving continues
	Error          State = 6 // everything posted is flushed
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint32(s))
}

// ErrState means that the state of a queue pair does not allow a change or an operation.
var ErrState = errors.New("wrong state")

// needs has the attributes that a change of state requires and permits.
type needs struct{ required, optional Mask }

type change struct {
	from, to State
	of       Transport
}

// changes are the changes between different states that require or permit attributes, for each
// transport: qp_state_table in the kernel's drivers/infiniband/core/verbs.c. Changes to Reset and
// Error need none and are always allowed.
var changes = map[change]needs{
	{Reset, Init, RC}: {MaskPKeyIndex | MaskPort | MaskAccess, 0},
	{Reset, Init, UC}: {MaskPKeyIndex | MaskPort | MaskAccess, 0},
	{Reset, Init, UD}: {MaskPKeyIndex | MaskPort | MaskQKey, 0},
	{Init, Init, RC}:  {0, MaskPKeyIndex | MaskPort | MaskAccess},
	{Init, Init, UC}:  {0, MaskPKeyIndex | MaskPort | MaskAccess},
	{Init, Init, UD}:  {0, MaskPKeyIndex | MaskPort | MaskQKey},
	{Init, ReadyToReceive, RC}: {MaskAddress | MaskPathMTU | MaskRemoteQPN | MaskReceivePSN | MaskMaxRemoteReads | MaskMinRNRTimer,
		MaskAccess | MaskPKeyIndex},
	{Init, ReadyToReceive, UC}: {MaskAddress | MaskPathMTU | MaskRemoteQPN | MaskReceivePSN, MaskAccess | MaskPKeyIndex},
	{Init, ReadyToReceive, UD}: {0, MaskPKeyIndex | MaskQKey},
	{ReadyToReceive, ReadyToSend, RC}: {MaskTimeout | MaskRetries | MaskRNRRetries | MaskSendPSN | MaskMaxReads,
		MaskCurrentState | MaskAccess | MaskMinRNRTimer},
	{ReadyToReceive, ReadyToSend, UC}: {MaskSendPSN, MaskCurrentState | MaskAccess},
	{ReadyToReceive, ReadyToSend, UD}: {MaskSendPSN, MaskCurrentState | MaskQKey},
	{ReadyToSend, ReadyToSend, RC}:    {0, MaskCurrentState | MaskAccess | MaskMinRNRTimer},
	{ReadyToSend, ReadyToSend, UC}:    {0, MaskCurrentState | MaskAccess},
	{ReadyToSend, ReadyToSend, UD}:    {0, MaskCurrentState | MaskQKey},
	{ReadyToSend, SendDrained, RC}:    {},
	{ReadyToSend, SendDrained, UC}:    {},
	{ReadyToSend, SendDrained, UD}:    {},
	{SendDrained, ReadyToSend, RC}:    {0, MaskCurrentState | MaskAccess | MaskMinRNRTimer},
	{SendDrained, ReadyToSend, UC}:    {0, MaskCurrentState | MaskAccess},
	{SendDrained, ReadyToSend, UD}:    {0, MaskCurrentState | MaskQKey},
	{SendDrained, SendDrained, RC}: {0, MaskPort | MaskAddress | MaskTimeout | MaskRetries | MaskRNRRetries | MaskMaxReads |
		MaskMaxRemoteReads | MaskAccess | MaskPKeyIndex | MaskMinRNRTimer},
	{SendDrained, SendDrained, UC}: {0, MaskAddress | MaskAccess | MaskPKeyIndex},
	{SendDrained, SendDrained, UD}: {0, MaskPKeyIndex | MaskQKey},
	{SendError, ReadyToSend, UC}:   {0, MaskCurrentState | MaskAccess},
	{SendError, ReadyToSend, UD}:   {0, MaskCurrentState | MaskQKey},
}

// CheckChange returns why a queue pair of the transport cannot change its state with these
// attributes: ErrState if no attributes would do, or an error that names those missing or not
// allowed. A provider calls it before it uses the device.
func CheckChange(t Transport, from, to State, given Mask) error {
	given &^= MaskState
	n, ok := lookup(t, from, to)
	if !ok {
		return fmt.Errorf("%v queue pair from %v to %v: %w: it can go from %v to %s", t, from, to, ErrState, from, strings.Join(next(t, from), ", "))
	}
	if missing := n.required &^ given; missing != 0 {
		return fmt.Errorf("%v queue pair from %v to %v: %v is missing", t, from, to, missing)
	}
	if extra := given &^ (n.required | n.optional); extra != 0 {
		return fmt.Errorf("%v queue pair from %v to %v: %v cannot be given", t, from, to, extra)
	}
	return nil
}

func lookup(t Transport, from, to State) (needs, bool) {
	switch {
	case to == Reset && from <= Error:
		return needs{}, true
	case to == Error && from != Reset && from <= Error:
		return needs{}, true
	}
	n, ok := changes[change{from, to, t}]
	return n, ok
}

// next returns the states that can follow.
func next(t Transport, from State) (names []string) {
	for to := Reset; to <= Error; to++ {
		if _, ok := lookup(t, from, to); ok {
			names = append(names, to.String())
		}
	}
	return names
}

// CanPostSend reports whether send requests are accepted; in Error they are flushed.
func (s State) CanPostSend() bool { return s == ReadyToSend || s == SendDrained || s >= SendError }

// CanPostReceive reports whether receives are accepted.
func (s State) CanPostReceive() bool { return s != Reset }

func (m Mask) String() string {
	var names []string
	for bit, name := range strings.Fields(maskNames) {
		if m&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Access is rights to registered memory, or the rights that a queue pair gives its peer: enum
// ibv_access_flags. A peer has only the rights that both allow.
type Access uint32

const (
	LocalWrite   Access = 1 << 0 // the device may write to it: receives, READ data
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	BindWindows  Access = 1 << 4 // memory windows may be bound to it

	// Remote is all rights of a peer.
	Remote = RemoteWrite | RemoteRead | RemoteAtomic

	// EveryAccess is all rights.
	EveryAccess = LocalWrite | Remote | BindWindows
)

var accessNames = []string{"local write", "remote write", "remote read", "remote atomic", "window bind"}

func (a Access) String() string {
	var names []string
	for bit, name := range accessNames {
		if a&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "local read"
	}
	return strings.Join(names, ", ")
}

// Transport is the service of a queue pair: enum ibv_qp_type in infiniband/verbs.h, with its
// numbers.
type Transport uint32

const (
	// RC is reliable and connected: messages arrive once, in order, or the queue
	// pair fails.
	RC Transport = 2
	// UC is connected and unreliable: a message that loses a packet is lost without an error.
	UC Transport = 3
	// UD sends datagrams of one packet to any peer. They may be lost.
	UD Transport = 4
)

var transportNames = map[Transport]string{RC: "RC", UC: "UC", UD: "UD"}

func (t Transport) String() string {
	if s, ok := transportNames[t]; ok {
		return s
	}
	return fmt.Sprintf("transport %d", uint32(t))
}

// ParseTransport reads RC, UC or UD, in capitals or not.
func ParseTransport(s string) (Transport, error) {
	for t, name := range transportNames {
		if strings.EqualFold(s, name) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("transport %q: it must be RC, UC or UD", s)
}

// Allows reports whether a queue pair of the transport supports the operation. IBTA specification,
// volume 1, table 35; ibv_post_send(3).
func (t Transport) Allows(op Op) bool {
	switch op {
	case Send, SendImmediate:
		return t == RC || t == UC || t == UD
	case Write, WriteImmediate:
		return t == RC || t == UC
	case Read, CompareSwap, FetchAdd, SendInvalidate:
		return t == RC
	case LocalInvalidate:
		return t == RC || t == UC
	}
	return false
}

// MarshalText is String, for flags and JSON.
func (t Transport) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseTransport.
func (t *Transport) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTransport(string(text))
	return err
}

// MTU is the payload of one packet, as enum ibv_mtu numbers it.
type MTU uint32

const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes returns the payload in bytes, 0 for an invalid number.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

func (m MTU) String() string { return fmt.Sprint(m.Bytes()) }

// ParseMTU returns the MTU of that many bytes.
func ParseMTU(bytes int) (MTU, error) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, nil
		}
	}
	return 0, fmt.Errorf("path MTU %d: it must be 256, 512, 1024, 2048 or 4096", bytes)
}

// overhead is the length that RoCE v2 over IPv6 adds to a packet after Ethernet's header: IPv6
// (40), UDP (8), base transport header (12), the largest extended headers (28), ICRC (4), minus the
// part that Soft-RoCE does not count. drivers/infiniband/sw/rxe/rxe_param.h has 80.
const overhead = 80

// FitsInterface returns the largest MTU that fits a network interface with this MTU, 0 if none
// does.
func FitsInterface(mtu int) MTU {
	for m := MTU4096; m >= MTU256; m-- {
		if m.Bytes()+overhead <= mtu {
			return m
		}
	}
	return 0
}
