package transport

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// QueuePairConfig says how to make a queue pair. SendCQ, ReceiveCQ and Shared of the embedded
// config are ignored in favour of those here.
type QueuePairConfig struct {
	rdma.QueuePairConfig
	Domain    Domain
	SendCQ    *CompletionQueue
	ReceiveCQ *CompletionQueue
	Shared    *ReceiveQueue // used in place of a receive queue of the queue pair's own
	// FreshReads answers a READ that the peer requests again from its middle with a FIRST packet, as the
	// specification requires. Otherwise the answer begins with a MIDDLE packet, as Soft-RoCE does and expects.
	FreshReads bool
	// Number is the queue pair number: 1 for the one of the connection manager, 0: any.
	Number uint32
}

// QueuePair is one end of a connection, or sends and receives datagrams. One thread each of the
// program may call PostSend, PostReceive, Bind, Loaned and Return. Any thread may call Number,
// Config, Domain and State. Everything else belongs to the engine's thread.
type QueuePair struct {
	engine   *Engine
	config   QueuePairConfig
	qpn      uint32
	slot     uint32
	state    atomic.Uint32 // a rdma.State, written by the engine
	sq       *sendQueue
	rq       *ReceiveQueue // nil with loans
	loans    *loans        // nil without
	attrs    rdma.Attributes
	peer     Peer
	mtu      uint32
	listed   [concerns]bool
	timer    timer
	alive    bool // a packet has arrived since RTR
	marked   Time // when the last CNP was sent
	congests bool // a CNP must be sent
	rate     rate
	requester
	responder
}

// NewQueuePair makes a queue pair, in Reset.
func (e *Engine) NewQueuePair(c QueuePairConfig) (*QueuePair, error) {
	c.SendSGEs, c.RecvSGEs = max(1, c.SendSGEs), max(1, c.RecvSGEs)
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("make a queue pair: %w", err)
	}
	place, err := e.place(c.Number)
	if err != nil {
		return nil, fmt.Errorf("make a queue pair: %w", err)
	}
	q := &QueuePair{engine: e, config: c, slot: place, sq: newSendQueue(c.SendDepth, c.SendSGEs, c.InlineBytes)}
	q.config.SendDepth = q.sq.depth()
	q.takeReceives()
	if q.qpn = c.Number; q.qpn == 0 {
		q.qpn = e.nextNumber(place)
	}
	e.slots[place].pair = q
	e.used = max(e.used, place+1)
	return q, nil
}

// takeReceives finds out where received messages go.
func (q *QueuePair) takeReceives() {
	c := &q.config
	switch {
	case c.Loans > 0:
		q.loans = newLoans(c.Loans)
		c.RecvDepth, c.RecvSGEs = 0, 0
	case c.Shared != nil:
		q.rq, c.RecvDepth, c.RecvSGEs = c.Shared, 0, 0
	default:
		q.rq = newReceiveQueue(c.RecvDepth, c.RecvSGEs)
		c.RecvDepth = int(q.rq.mask) + 1
	}
}

func (c *QueuePairConfig) check() error {
	if !c.Transport.Allows(rdma.Send) {
		return fmt.Errorf("%v is none of RC, UC and UD", c.Transport)
	}
	if c.SendCQ == nil || c.ReceiveCQ == nil {
		return fmt.Errorf("it needs two completion queues, or one twice")
	}
	if c.Loans > 0 && c.Shared != nil {
		return fmt.Errorf("with a shared receive queue there are no loans")
	}
	if c.Number > 1 {
		return fmt.Errorf("number %d: only number 1 can be asked for", c.Number)
	}
	for _, size := range []struct {
		name      string
		got, most int
	}{
		{"SendDepth", c.SendDepth, MaxDepth}, {"RecvDepth", c.RecvDepth, MaxDepth}, {"SendSGEs", c.SendSGEs, MaxPieces},
		{"RecvSGEs", c.RecvSGEs, MaxPieces}, {"InlineBytes", c.InlineBytes, MaxInline}, {"Loans", c.Loans, MaxLoans},
	} {
		if size.got < 0 || size.got > size.most {
			return fmt.Errorf("%s %d: the most is %d", size.name, size.got, size.most)
		}
	}
	return nil
}

// place finds a place for a queue pair with that number.
func (e *Engine) place(number uint32) (uint32, error) {
	if number != 0 {
		place := number >> e.config.ShardBits
		if number&(1<<e.config.ShardBits-1) != uint32(e.config.Shard) || place >= firstPlace || e.slots[place].pair != nil {
			return 0, fmt.Errorf("number %d is taken, or another shard's", number)
		}
		return place, nil
	}
	if len(e.free) == 0 {
		return 0, fmt.Errorf("all %d are in use", e.config.QueuePairs)
	}
	place := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	return place, nil
}

// Number returns the queue pair number, of 24 bits.
func (q *QueuePair) Number() uint32 { return q.qpn }

// Config returns the configuration as granted.
func (q *QueuePair) Config() QueuePairConfig { return q.config }

// Peer returns the path to the peer of a connected queue pair.
func (q *QueuePair) Peer() Peer { return q.peer }

// State returns the state. Any thread may call it.
func (q *QueuePair) State() rdma.State { return rdma.State(q.state.Load()) }

func (q *QueuePair) String() string {
	return fmt.Sprintf("%v queue pair %d", q.config.Transport, q.qpn)
}

// Close destroys the queue pair. Outstanding requests are never completed. Frames on loan that the
// program has not taken return through Freed; those that it has taken stay the caller's. Closing
// again does nothing.
func (q *QueuePair) Close() {
	e := q.engine
	if e.slots[q.slot].pair != q {
		return
	}
	q.reset()
	if q.loans != nil {
		e.freed = q.loans.recall(e.freed)
	}
	for of := range e.lists {
		e.lists[of].remove(q)
	}
	e.timers.remove(q)
	e.detachAll(q)
	e.slots[q.slot].pair = nil
	if q.slot >= firstPlace {
		e.free = append(e.free, q.slot)
	}
}

// publish makes the engine's indices visible to the program.
func (q *QueuePair) publish() {
	if q.sq.head.Load() != q.head {
		release.Store32(&q.sq.head, q.head)
	}
	if q.rq != nil {
		q.rq.publish()
	} else {
		q.loans.publish()
	}
}

// touch marks the queue pair to be published at the end of the batch.
func (q *QueuePair) touch() { q.engine.lists[touched].add(q) }

// complete adds a completion to a queue. If the queue is full the queue pair is in Error when it
// returns, which the caller must check.
func (q *QueuePair) complete(c *CompletionQueue, w *rdma.WorkCompletion, solicited bool) {
	e := q.engine
	w.QPN = q.qpn
	q.touch()
	e.list(c)
	if c.put(w, solicited) {
		return
	}
	e.count(CompletionsLost)
	if !c.over.Swap(true) {
		e.event(rdma.CompletionQueueError, 0)
	}
	if q.State() != rdma.Error {
		e.event(rdma.QueuePairFatal, q.qpn)
		q.fail()
	}
}

// Modify implements rdma.QueuePair. peer is the path to the address in a, and used only if that is
// given.
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

// checkLimits refuses attributes that an engine does not support: too many READs and atomics, more
// than one P_Key, a path MTU larger than the port's.
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

// take stores the attributes that are given.
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

// enter does what a change of state requires.
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

// open prepares the queue pair to receive.
func (q *QueuePair) open() {
	mtu := q.attrs.PathMTU
	if q.config.Transport == rdma.UD {
		mtu = q.engine.config.MTU
	}
	q.mtu = uint32(mtu.Bytes())
	q.alive = false
	q.responder.begin(wire.MakePSN(q.attrs.ReceivePSN))
}

// Query implements rdma.QueuePair. The PSNs are the next ones.
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

// reset discards all state but loans. The program must not post at the same time.
func (q *QueuePair) reset() {
	q.state.Store(uint32(rdma.Reset))
	q.engine.timers.clear(q)
	q.silence()
	q.congests, q.rate = false, rate{}
	q.responder.abandon(q)
	q.receive.taken = false
	q.requester = requester{}
	at := q.sq.discard()
	q.head, q.cursor, q.nextWQE = at, at, at
	clear(q.sq.works)
	if q.rq != nil && !q.rq.shared {
		q.rq.discard()
	}
	q.attrs = rdma.Attributes{}
}
