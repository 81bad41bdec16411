package roce

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// Messages in one packet that nothing goes in front of have a way of their own through the datapath (see package transport), for what
// they cost is mostly how much code and data there is to a message: the kernel's part of the last one has left little of it in the
// processor's caches. What can wait until the program was told, or the packet is on its way, does.

// mostLooked is how many frames that were looked at may lie in a queue's ring.
const mostLooked = 8

// fastReceive takes the packet that came first, where it is a message by itself and the next that is expected, and says whether
// it was. An acknowledgement in front of it is set aside. Their frames stay in the ring until there is time for them. Nothing but post comes between it
// and tookFirst.
func (m *datapath) fastReceive() bool {
	for _, q := range m.queues {
		for b, ok := m.front(q); ok; b, ok = m.front(q) {
			if m.fastReceiveOne(b) {
				q.looked++
				return true
			}
			if !m.deferACK(q) {
				return false
			}
		}
	}
	return false
}

// front is the first packet of a queue that was not looked at, where it may be: it lies in one frame, and not too many were.
func (m *datapath) front(q *queue) (b []byte, ok bool) {
	f, ok := q.port.Peek(q.looked)
	if !ok || q.looked == mostLooked || q.n > 0 || f.Continues() {
		return nil, false
	}
	return m.data[f.Addr : f.Addr+uint64(f.Len)], true
}

// fastReceiveOne takes a packet in one piece, or says no and has done nothing.
func (m *datapath) fastReceiveOne(b []byte) bool {
	e := &m.envelope
	if !m.mine || !e.Repeats(b) {
		return false
	}
	end := e.Transport + e.Length
	part := b[e.Transport:end]
	from, n, ok := m.fast.Decode(part)
	if !ok {
		return false
	}
	p, ok := m.engine.Match(&m.fast, &e.Source, n)
	if !ok || !wire.Check(b[e.Network:end]) || !p.Place(part[from:from+n]) {
		return false
	}
	m.open = p
	return true
}

// finishReceive ends what takeFirst and setAside began, where they took something.
func (m *datapath) finishReceive() {
	if m.open.IsOpen() {
		m.open.Finish()
		m.open = transport.FastReceive{}
	}
	if m.hasDeferred {
		m.hasDeferred = false
		m.readDeferredACK()
	}
}

// deferACK takes the acknowledgement that is in front, if it is one, for tookFirst to read: a message behind it need not wait for that.
func (m *datapath) deferACK(q *queue) bool {
	b, ok := m.front(q)
	if !ok || m.hasDeferred || !m.mine || !m.envelope.Repeats(b) || !wire.Acknowledges(b[m.envelope.Transport:]) {
		return false
	}
	m.deferred[0], _ = q.port.Peek(q.looked)
	m.hasDeferred = true
	q.looked++
	return true
}

// readDeferredACK gives the engine what was set aside.
func (m *datapath) readDeferredACK() {
	a := &m.arrivals[0]
	*a = transport.Arrival{}
	m.viewed = 0
	if why := m.parse(a, m.deferred[:], 0); why != wire.WellFormed {
		m.counts.malformed[why]++
		return
	}
	m.engine.Receive(m.now(), m.arrivals[:1])
}

// clear takes out of the rings what takeFirst has left there.
func (m *datapath) clear() {
	for _, q := range m.queues {
		if q.looked > 0 {
			n := q.port.Recv(q.frames[:q.looked])
			q.out -= n
			q.looked -= n
			m.spare(q.frames[:n])
		}
	}
}

// fastPost posts a request and sends its packet at once, where that is a message by itself and nothing goes in front of it, and says whether
// it was.
func (m *datapath) fastPost(q *transport.QueuePair, r *rdma.SendRequest, sges []rdma.SGE) bool {
	if len(m.pool.headers) == 0 || !m.copies {
		return false
	}
	p, ok := q.TrySend(r, sges, m.short)
	if !ok {
		return false
	}
	t := &m.paths[q.Peer()]
	if t.loopback || !m.fastSend(t, &p.Header, p.Payload) {
		return false
	}
	p.Finish()
	why := copiedShort
	if r.Flags&rdma.Inline != 0 {
		why = copiedInline
	}
	m.counts.add(why, uint64(len(p.Payload)))
	return true
}

// fastSend sends a packet with a copy of its payload, and says whether there was room for it.
func (m *datapath) fastSend(t *path, h *wire.Only, payload []byte) bool {
	last := len(m.pool.headers) - 1
	head := umem.Frame{Addr: m.pool.headers[last].Addr}
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
		m.pool.headers = m.pool.headers[:last]
		m.id++
	}
	return sent
}
