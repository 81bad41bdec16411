package roce

import (
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// loopback are packets to addresses of the device itself: they are copied to where the card would have put them, and taken with
// those that come.
type loopback struct {
	frames  [loopbackFrames]umem.Frame
	n       int
	headers [wire.MaxEnvelopeBytes + wire.MaxHeaderBytes]byte // of one
}

// putLoopback hands a packet round. Where there is no frame for it, it is lost, as on the way to another machine.
func (m *datapath) putLoopback(p *transport.Packet, t *path) {
	m.engine.Transmitted(1)
	if len(m.pool.empty) < m.longest || m.loopback.n+m.longest > len(m.loopback.frames) {
		m.counts.add(unsent, 1)
		return
	}
	b, h := &m.loopback.headers, &p.Header
	m.id++
	n := t.template.Put(b[:], m.id, h.Opcode.HeaderBytes()+int(p.Length)+int(h.Pad)+wire.ICRCBytes)
	n += h.Encode(b[n:])
	w := writer{m: m, own: true}
	w.begin(w.next())
	w.write(b[:n])
	c := w.payload(p, wire.Begin(b[t.template.Network():n]))
	w.write(b[:c.Finish(b[:], h.Pad)])
	m.counts.add(copiedOwn, uint64(p.Length))
	m.loopback.n += copy(m.loopback.frames[m.loopback.n:], m.parts[:w.n])
}

// emptyFrame takes a frame for a packet to arrive in.
func (m *datapath) emptyFrame() umem.Frame {
	last := len(m.pool.empty) - 1
	f := m.pool.empty[last]
	m.pool.empty = m.pool.empty[:last]
	return f
}

// receiveLoopback takes packets of our own, and says whether there were any.
func (m *datapath) receiveLoopback() bool {
	n := min(m.loopback.n, batch)
	for n < m.loopback.n && n > 0 && m.loopback.frames[n-1].Continues() {
		n++
	}
	if n == 0 {
		return false
	}
	m.read(m.loopback.frames[:n])
	m.loopback.n = copy(m.loopback.frames[:], m.loopback.frames[n:m.loopback.n])
	return true
}
