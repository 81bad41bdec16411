package transport

import (
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// unreliable processes a packet of UC. If a packet of a message is missing or refused, the message
// is dropped without a NAK. The next one starts with its first packet. IBTA specification, volume
// 1, 9.8.
func (q *QueuePair) unreliable(a *Arrival) {
	h, m := &a.Header, &q.message
	if h.Opcode.Starts() {
		q.lose()
	} else if m.kind == wire.NoKind || h.PSN != q.expected {
		q.lose()
		q.engine.drop(BadPSN)
		return
	}
	q.expected = h.PSN
	v := q.execute(a)
	switch v {
	case accepted:
		return
	case faulty:
		q.engine.drop(LocalFault)
		q.breakDown(rdma.LocalProtection, rdma.QueuePairFatal)
		return
	}
	q.engine.drop(consequences[v].drop)
	q.lose()
}

// lose drops the current message. Its receive stays for the next one.
func (q *QueuePair) lose() { q.responder.abandon(q) }

// datagram processes a packet of UD, which is a whole message.
func (q *QueuePair) datagram(a *Arrival) {
	e, h, n := q.engine, &a.Header, a.length()
	switch {
	case h.QKey != q.attrs.QKey:
		e.drop(BadQKey)
		return
	case wire.CheckPayload(h.Opcode, int(n), int(q.mtu)) != wire.WellFormed || len(a.GRH) != rdma.GRHBytes:
		e.drop(Invalid)
		return
	}
	v := q.takeDatagram(a, n)
	if v == accepted {
		q.deliver(a, rdma.Received, uint32(n)+rdma.GRHBytes)
		return
	}
	e.drop(consequences[v].drop)
	if v == faulty {
		q.breakDown(rdma.LocalProtection, rdma.QueuePairFatal)
	}
}

// takeDatagram keeps the frames, or copies network header and payload into a receive. A receive
// that is too short stays for another datagram.
func (q *QueuePair) takeDatagram(a *Arrival, n uint64) nakCode {
	q.message.length = 0
	if q.loans != nil {
		if v := q.readyToLend(len(a.Payload), n); v != accepted {
			return v
		}
		return q.takeIn(a, n)
	}
	r := &q.receive
	switch {
	case !r.taken && !q.takeReceive():
		return notReady
	case n+rdma.GRHBytes > r.room:
		return tooLong
	case !q.engine.scatterBytes(q.config.Domain, r.sges[:r.count], 0, a.GRH):
		return faulty
	}
	q.message.length = rdma.GRHBytes // before the payload
	return q.takeIn(a, n)
}

// Attach makes a queue pair receive the datagrams to a group. Frames can be lent to one queue pair
// only, so a group has at most one queue pair with loans, which is served last.
func (e *Engine) Attach(q *QueuePair, group rdma.GID) error {
	members := e.groups[group]
	switch {
	case q.config.Transport != rdma.UD:
		return fmt.Errorf("attach %v to %v: groups are for datagrams", q, group)
	case !group.Addr().IsMulticast():
		return fmt.Errorf("attach %v to %v: it is no multicast address", q, group)
	case slices.Contains(members, q):
		return nil
	case q.loans == nil:
		e.groups[group] = slices.Insert(members, 0, q)
		return nil
	case slices.ContainsFunc(members, func(m *QueuePair) bool { return m.loans != nil }):
		return fmt.Errorf("attach %v to %v: another queue pair has its frames lent", q, group)
	}
	e.groups[group] = append(members, q)
	return nil
}

// Detach undoes Attach.
func (e *Engine) Detach(q *QueuePair, group rdma.GID) {
	members := slices.DeleteFunc(e.groups[group], func(m *QueuePair) bool { return m == q })
	if e.groups[group] = members; len(members) == 0 {
		delete(e.groups, group)
	}
}

func (e *Engine) detachAll(q *QueuePair) {
	for group := range e.groups {
		e.Detach(q, group)
	}
}

// receiveGroup gives a datagram to all queue pairs that are attached to its destination.
func (e *Engine) receiveGroup(a *Arrival) {
	members := e.groups[a.To]
	if len(members) == 0 {
		e.drop(NoGroup)
	}
	for _, q := range members {
		if d, ok := q.admits(a); !ok {
			e.drop(d)
			continue
		}
		q.datagram(a)
	}
}
