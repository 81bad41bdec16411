package transport

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// Modify is that of rdma.QueuePair. peer is the way to the address in a, and looked at where that is given.
func (q *QueuePair) Modify(a rdma.Attributes, given rdma.Mask, peer Peer) error {
	from := q.State()
	if given&rdma.MaskState == 0 {
		a.State = from
	}
	err := rdma.CheckChange(q.config.Transport, from, a.State, given)
	if err == nil {
		err = errors.Join(a.CheckRanges(given), q.checkLimits(&a, given))
	}
	if err == nil && given&rdma.MaskCurrentState != 0 && a.CurrentState != from {
		err = fmt.Errorf("%w: it is in %v, and not in %v", rdma.ErrState, from, a.CurrentState)
	}
	if err != nil {
		return fmt.Errorf("modify %v: %w", q, err)
	}
	q.take(&a, given, peer)
	q.enter(from, a.State)
	q.engine.publish()
	return nil
}

// checkLimits refuses what an engine does not do: as many READs and atomics at once, more than one P_Key, a
// path MTU that the port does not carry.
func (q *QueuePair) checkLimits(a *rdma.Attributes, given rdma.Mask) error {
	most := q.engine.config.MTU
	switch {
	case given&rdma.MaskMaxReads != 0 && a.MaxReads > MaxReads:
		return fmt.Errorf("MaxReads %d: the most is %d", a.MaxReads, MaxReads)
	case given&rdma.MaskMaxRemoteReads != 0 && a.MaxRemoteReads > MaxReads:
		return fmt.Errorf("MaxRemoteReads %d: the most is %d", a.MaxRemoteReads, MaxReads)
	case given&rdma.MaskPKeyIndex != 0 && a.PKeyIndex != 0:
		return fmt.Errorf("PKeyIndex %d: there is one P_Key, at 0", a.PKeyIndex)
	case given&rdma.MaskPathMTU == 0:
		return nil
	case a.PathMTU.Bytes() == 0:
		return fmt.Errorf("path MTU number %d is none of the five", uint32(a.PathMTU))
	case a.PathMTU > most:
		return fmt.Errorf("path MTU %v: the port carries at most %v: raise the MTU of its network interface", a.PathMTU, most)
	}
	return nil
}

// take keeps the attributes that are given.
func (q *QueuePair) take(a *rdma.Attributes, given rdma.Mask, peer Peer) {
	to := &q.attrs
	keep(given, rdma.MaskAccess, &to.Access, a.Access&rdma.Remote)
	keep(given, rdma.MaskPKeyIndex, &to.PKeyIndex, a.PKeyIndex)
	keep(given, rdma.MaskPort, &to.Port, a.Port)
	keep(given, rdma.MaskQKey, &to.QKey, a.QKey)
	keep(given, rdma.MaskAddress, &to.Address, a.Address)
	keep(given, rdma.MaskAddress, &q.peer, peer)
	keep(given, rdma.MaskPathMTU, &to.PathMTU, a.PathMTU)
	keep(given, rdma.MaskTimeout, &to.Timeout, a.Timeout)
	keep(given, rdma.MaskRetries, &to.Retries, a.Retries)
	keep(given, rdma.MaskRNRRetries, &to.RNRRetries, a.RNRRetries)
	keep(given, rdma.MaskMinRNRTimer, &to.MinRNRTimer, a.MinRNRTimer)
	keep(given, rdma.MaskSendPSN, &to.SendPSN, a.SendPSN)
	keep(given, rdma.MaskReceivePSN, &to.ReceivePSN, a.ReceivePSN)
	keep(given, rdma.MaskRemoteQPN, &to.RemoteQPN, a.RemoteQPN)
	keep(given, rdma.MaskMaxReads, &to.MaxReads, a.MaxReads)
	keep(given, rdma.MaskMaxRemoteReads, &to.MaxRemoteReads, a.MaxRemoteReads)
	if given&rdma.MaskMaxRemoteReads != 0 {
		q.responder.keepReplies(int(a.MaxRemoteReads))
	}
}

func keep[T any](given, of rdma.Mask, to *T, v T) {
	if given&of != 0 {
		*to = v
	}
}

// enter does what a change of state brings with it.
func (q *QueuePair) enter(from, to rdma.State) {
	switch {
	case to == rdma.Reset:
		q.reset()
		return
	case to == rdma.Error:
		q.silence()
		q.fail()
		return
	case from == rdma.Init && to == rdma.ReadyToReceive:
		q.open()
	case from == rdma.ReadyToReceive && to == rdma.ReadyToSend:
		q.begin(wire.MakePSN(q.attrs.SendPSN))
	case from == rdma.ReadyToSend && to == rdma.SendDrained:
		q.drain()
	}
	q.state.Store(uint32(to))
	q.engine.lists[sending].add(q)
}

// open readies the queue pair to receive.
func (q *QueuePair) open() {
	mtu := q.attrs.PathMTU
	if q.config.Transport == rdma.UD {
		mtu = q.engine.config.MTU
	}
	q.mtu = uint32(mtu.Bytes())
	q.alive = false
	q.responder.begin(wire.MakePSN(q.attrs.ReceivePSN))
}

// Query is that of rdma.QueuePair: the PSNs are the next ones.
func (q *QueuePair) Query() rdma.Attributes {
	a := q.attrs
	a.State = q.State()
	a.CurrentState = a.State
	if a.State >= rdma.ReadyToReceive {
		a.ReceivePSN = uint32(q.expected)
	}
	if a.State >= rdma.ReadyToSend {
		a.SendPSN = uint32(q.assigned)
	}
	return a
}

// reset forgets everything but what was lent. The program does not post meanwhile.
func (q *QueuePair) reset() {
	q.state.Store(uint32(rdma.Reset))
	q.engine.timers.clear(q)
	q.silence()
	q.congests = false
	q.responder.abandon(q)
	q.receive.taken = false
	q.requester = requester{}
	at := q.sq.discard()
	q.head, q.cursor, q.fresh = at, at, at
	clear(q.sq.works)
	if q.rq != nil && !q.rq.shared {
		q.rq.discard()
	}
	q.attrs = rdma.Attributes{}
}
