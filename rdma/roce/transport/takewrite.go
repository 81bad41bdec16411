package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// takeWrite takes a packet of a WRITE. The right to the memory is looked at with each packet, and may have ended between two.
func (q *QueuePair) takeWrite(a *Arrival) nakCode {
	m, h, n := &q.message, &a.Header, a.length()
	if q.attrs.Access&rdma.RemoteWrite == 0 {
		return invalid
	}
	if h.Opcode.HasImmediate() && !q.readyForWrite() {
		return notReady
	}
	if h.Opcode.Starts() {
		*m = message{kind: wire.Write, va: h.VA, rkey: h.RKey, left: h.DMALength, total: h.DMALength}
	}
	if !m.fits(h.Opcode, n, q.mtu) {
		return invalid
	}
	if m.left > 0 && !q.engine.keys.remote(m.rkey, q.config.Domain, q.qpn, m.va, uint64(m.left), rdma.RemoteWrite) {
		return forbidden
	}
	q.engine.putPayload(m.va, a.Payload)
	m.va += n
	m.left -= uint32(n)
	if h.Opcode.HasImmediate() {
		q.deliver(a, rdma.ReceivedWrite, m.total)
	}
	return accepted
}

// fits says whether a packet of n bytes is what its opcode and the length of the message call for.
func (m *message) fits(o wire.Opcode, n uint64, mtu uint32) bool {
	if m.total > MaxMessage || wire.CheckPayload(o, int(n), int(mtu)) != wire.WellFormed {
		return false
	}
	if o.Ends() {
		return n == uint64(m.left)
	}
	return n < uint64(m.left)
}

// readyForWrite says whether the program can be told of a WRITE with immediate.
func (q *QueuePair) readyForWrite() bool {
	if q.loans != nil {
		return q.config.ReceiveCQ.room(1)
	}
	return q.receive.taken || q.takeReceive()
}
