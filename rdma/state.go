package rdma

import (
	"errors"
	"fmt"
	"strings"
)

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
