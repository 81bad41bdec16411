package roce

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// Messages in one packet that nothing goes in front of have a way of their own through the machine (see package transport), for what
// they cost is mostly how much code and data there is to a message: the kernel's part of the last one has left little of it in the
// processor's caches. What can wait until the program was told, or the packet is on its way, does.

// mostLooked is how many frames that were looked at may lie in a queue's ring.
const mostLooked = 8

// takeFirst takes the packet that came first, where it is a message by itself and the next that is expected, and says whether
// it was. An acknowledgement in front of it is set aside. Their frames stay in the ring until there is time for them. Nothing but post comes between it
// and tookFirst.
func (m *machine) takeFirst() bool {
	for _, q := range m.queues {
		for b, ok := m.front(q); ok; b, ok = m.front(q) {
			if m.takeOnly(b) {
				q.looked++
				return true
			}
			if !m.setAside(q) {
				return false
			}
		}
	}
	return false
}

// front is the first packet of a queue that was not looked at, where it may be: it lies in one frame, and not too many were.
func (m *machine) front(q *queue) (b []byte, ok bool) {
	f, ok := q.port.Peek(q.looked)
	if !ok || q.looked == mostLooked || q.n > 0 || f.Continues() {
		return nil, false
	}
	return m.data[f.Addr : f.Addr+uint64(f.Len)], true
}

// takeOnly takes a packet in one piece, or says no and has done nothing.
func (m *machine) takeOnly(b []byte) bool {
	e := &m.envelope
	if !m.mine || !e.Repeats(b) {
		return false
	}
	end := e.Transport + e.Length
	part := b[e.Transport:end]
	from, n, ok := m.only.Decode(part)
	if !ok {
		return false
	}
	q := m.engine.Expects(&m.only, &e.Source, n)
	if q == nil || !wire.Check(b[e.Network:end]) || !q.ReceiveOnly(&m.only, part[from:from+n]) {
		return false
	}
	m.first = q
	return true
}

// tookFirst ends what takeFirst and setAside began, where they took something.
func (m *machine) tookFirst() {
	if q := m.first; q != nil {
		m.first = nil
		q.ReceivedOnly(&m.only)
	}
	if m.waits {
		m.waits = false
		m.readAside()
	}
}

// setAside takes the acknowledgement that is in front, if it is one, for tookFirst to read: a message behind it need not wait for that.
func (m *machine) setAside(q *queue) bool {
	b, ok := m.front(q)
	if !ok || m.waits || !m.mine || !m.envelope.Repeats(b) || !wire.Acknowledges(b[m.envelope.Transport:]) {
		return false
	}
	m.aside[0], _ = q.port.Peek(q.looked)
	m.waits = true
	q.looked++
	return true
}

// readAside gives the engine what was set aside.
func (m *machine) readAside() {
	a := &m.arrivals[0]
	*a = transport.Arrival{}
	m.viewed = 0
	if why := m.parse(a, m.aside[:], 0); why != wire.WellFormed {
		m.counts.malformed[why]++
		return
	}
	m.engine.Receive(m.now(), m.arrivals[:1])
}

// clear takes out of the rings what takeFirst has left there.
func (m *machine) clear() {
	for _, q := range m.queues {
		if q.looked > 0 {
			n := q.port.Recv(q.frames[:q.looked])
			q.out -= n
			q.looked -= n
			m.spare(q.frames[:n])
		}
	}
}

// post posts a request and sends its packet at once, where that is a message by itself and nothing goes in front of it, and says whether
// it was.
func (m *machine) post(q *transport.QueuePair, r *rdma.SendRequest, sges []rdma.SGE) bool {
	if len(m.stock.heads) == 0 || !m.copies {
		return false
	}
	h, payload, ok := q.SendOnly(r, sges, m.short)
	if !ok {
		return false
	}
	t := &m.paths[q.Peer()]
	if t.own || !m.sendOnly(t, &h, payload) {
		return false
	}
	q.SentOnly(r, sges, payload)
	why := copiedShort
	if r.Flags&rdma.Inline != 0 {
		why = copiedInline
	}
	m.counts.add(why, uint64(len(payload)))
	return true
}

// sendOnly sends a packet with a copy of its payload, and says whether there was room for it.
func (m *machine) sendOnly(t *path, h *wire.Only, payload []byte) bool {
	last := len(m.stock.heads) - 1
	head := umem.Frame{Addr: m.stock.heads[last].Addr}
	b := m.data[head.Addr : head.Addr+m.chunk]
	n := t.template.Put(b, m.id, h.HeaderBytes()+len(payload)+int(h.Pad)+wire.ICRCBytes)
	n += h.Encode(b[n:])
	n += copy(b[n:], payload)
	n += wire.Begin(b[t.template.Network():n]).Finish(b[n:], h.Pad)
	head.Len = uint32(n)
	sent, err := m.port.SendNow(head)
	if err != nil {
		m.counts.add(kickErrors, 1)
	}
	if sent {
		m.region.Side(head).Token = 1
		m.stock.heads = m.stock.heads[:last]
		m.id++
	}
	return sent
}
