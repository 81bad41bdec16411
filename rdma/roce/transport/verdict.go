package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// nakCode is what becomes of a request of the peer's.
type nakCode uint8

const (
	accepted nakCode = iota
	notReady
	disordered
	invalid
	tooLong
	forbidden
	faulty
	verdicts
)

// consequences are what follows from each verdict: what the peer is told, how the receive ends that was taken for the message,
// what is counted, and the event of the queue pair. IBTA specification, volume 1, 9.9.3 and table 60.
var consequences = [verdicts]struct {
	syndrome wire.Syndrome
	status   rdma.Status
	drop     Drop
	event    rdma.EventKind
}{
	notReady:   {drop: NoReceive},
	disordered: {wire.NAKInvalidRequest, rdma.RemoteInvalidRequest, BadSequence, rdma.QueuePairRequest},
	invalid:    {wire.NAKInvalidRequest, rdma.RemoteInvalidRequest, Invalid, rdma.QueuePairRequest},
	tooLong:    {wire.NAKInvalidRequest, rdma.LocalLength, TooLong, rdma.QueuePairRequest},
	forbidden:  {wire.NAKRemoteAccess, rdma.LocalAccess, NoAccess, rdma.QueuePairAccess},
	faulty:     {wire.NAKRemoteOperation, rdma.LocalProtection, LocalFault, rdma.QueuePairFatal},
}
