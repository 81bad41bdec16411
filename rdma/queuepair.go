package rdma

import (
	"errors"
	"fmt"
	"strings"
)

// Mask says which fields of Attributes are given: enum ibv_qp_attr_mask.
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

// Attributes are what changes when a queue pair goes from one state to another:
// struct ibv_qp_attr.
type Attributes struct {
	State        State
	CurrentState State
	Access       Access // what the peer may do
	PKeyIndex    uint16
	Port         uint8
	QKey         uint32 // of datagrams
	Address      Address
	PathMTU      MTU
	Timeout      uint8  // for an acknowledgement: 4.096 µs << Timeout; 0 waits for ever
	Retries      uint8  // at most 7, before RetryExceeded
	RNRRetries   uint8  // before ReceiverNotReadyExceeded; 7 goes on for ever
	MinRNRTimer  uint8  // what a sender is told to wait for our receives, IBTA table 45
	SendPSN      uint32 // 24 bits
	ReceivePSN   uint32 // the peer's SendPSN
	RemoteQPN    uint32
	// MaxReads is how many READs and atomics of ours may be outstanding, MaxRemoteReads how many of the peer's.
	MaxReads, MaxRemoteReads uint8
}

// CheckRanges refuses numbers that do not fit their fields of a packet or of the device. Some of them are
// a peer's. A provider asks it before the device.
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

// Address is the way to a peer: struct ibv_ah_attr.
type Address struct {
	GID          GID // of the peer; zero: by LID alone, on one InfiniBand subnet
	GIDIndex     uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	LID          uint16 // of the peer, on InfiniBand
	SL           uint8
	PathBits     uint8
	StaticRate   uint8
	Port         uint8 // of ours
}

// State is that of a queue pair: enum ibv_qp_state, with its numbers.
type State uint32

const (
	Reset          State = 0 // as made
	Init           State = 1 // receives may be posted
	ReadyToReceive State = 2 // RTR
	ReadyToSend    State = 3 // RTS
	SendDrained    State = 4 // SQD: what was posted completes, what is posted waits
	SendError      State = 5 // SQE: a send of UC or UD failed; receives go on
	Error          State = 6 // everything posted is flushed
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint32(s))
}

// ErrState is a change of state, or an operation, that the state a queue pair is in does not allow.
var ErrState = errors.New("wrong state")

// needs is what a change of state must be given and may be given.
type needs struct{ required, optional Mask }

type change struct {
	from, to State
	of       Transport
}

// changes are those between different states that need or take attributes, of each
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

// CheckChange reports why a queue pair of the transport cannot go from one state to another
// with these attributes: an error of ErrState where no attributes would do, or one that names
// those missing or out of place. A provider asks it before the device.
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

// next are the states that can follow.
func next(t Transport, from State) (names []string) {
	for to := Reset; to <= Error; to++ {
		if _, ok := lookup(t, from, to); ok {
			names = append(names, to.String())
		}
	}
	return names
}

// CanPostSend reports whether send work requests are taken; in Error they are flushed.
func (s State) CanPostSend() bool { return s == ReadyToSend || s == SendDrained || s >= SendError }

// CanPostReceive reports whether receives are taken.
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

// Access is rights to registered memory, and what a queue pair lets its peer do: enum
// ibv_access_flags. A peer can do what both allow.
type Access uint32

const (
	LocalWrite   Access = 1 << 0 // the device may write it: receives, READ data
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	BindWindows  Access = 1 << 4 // memory windows may be bound to it

	// Remote is every right of a peer's.
	Remote = RemoteWrite | RemoteRead | RemoteAtomic

	// EveryAccess is all there is.
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

// Transport is the service a queue pair gives: enum ibv_qp_type in
// infiniband/verbs.h, with its numbers.
type Transport uint32

const (
	// RC is reliable and connected: messages arrive once, in order, or the queue
	// pair fails.
	RC Transport = 2
	// UC is connected: a message that loses a packet is lost whole, without a word.
	UC Transport = 3
	// UD is datagrams of one packet to any peer, which may be lost.
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

// Allows reports whether a queue pair of the transport takes the operation. IBTA
// specification, volume 1, table 35; ibv_post_send(3).
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

// Bytes is the payload in bytes, 0 of a number that is none of the five.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

func (m MTU) String() string { return fmt.Sprint(m.Bytes()) }

// ParseMTU is the MTU of that many bytes.
func ParseMTU(bytes int) (MTU, error) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, nil
		}
	}
	return 0, fmt.Errorf("path MTU %d: it must be 256, 512, 1024, 2048 or 4096", bytes)
}

// overhead is what RoCE v2 over IPv6 adds to a packet behind Ethernet's header: IPv6 (40),
// UDP (8), base transport header (12), the largest extended headers (28), ICRC (4), less
// what Soft-RoCE does not reckon with. drivers/infiniband/sw/rxe/rxe_param.h has 80.
const overhead = 80

// FitsInterface is the largest MTU that goes through a network interface with this MTU,
// and 0 where none does.
func FitsInterface(mtu int) MTU {
	for m := MTU4096; m >= MTU256; m-- {
		if m.Bytes()+overhead <= mtu {
			return m
		}
	}
	return 0
}
