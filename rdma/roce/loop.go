package roce

import (
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// own are packets to addresses of the device itself: they are copied to where the card would have put them, and taken with
// those that come.
type own struct {
	frames  [ownFrames]umem.Frame
	n       int
	headers [wire.MaxEnvelopeBytes + wire.MaxHeaderBytes]byte // of one
}

// putOwn hands a packet round. Where there is no frame for it, it is lost, as on the way to another machine.
func (m *machine) putOwn(p *transport.Packet, t *path) {
	m.engine.Transmitted(1)
	if len(m.stock.empty) < m.longest || m.own.n+m.longest > len(m.own.frames) {
		m.counts.add(unsent, 1)
		return
	}
	b, h := &m.own.headers, &p.Header
	m.id++
	n := t.template.Put(b[:], m.id, h.Opcode.HeaderBytes()+int(p.Length)+int(h.Pad)+wire.ICRCBytes)
	n += h.Encode(b[n:])
	w := writer{m: m, own: true}
	w.begin(w.next())
	w.write(b[:n])
	c := w.payload(p, wire.Begin(b[t.template.Network():n]))
	w.write(b[:c.Finish(b[:], h.Pad)])
	m.counts.add(copiedOwn, uint64(p.Length))
	m.own.n += copy(m.own.frames[m.own.n:], m.parts[:w.n])
}

// emptyFrame takes a frame for a packet to arrive in.
func (m *machine) emptyFrame() umem.Frame {
	last := len(m.stock.empty) - 1
	f := m.stock.empty[last]
	m.stock.empty = m.stock.empty[:last]
	return f
}

// receiveOwn takes packets of our own, and says whether there were any.
func (m *machine) receiveOwn() bool {
	n := min(m.own.n, batch)
	for n < m.own.n && n > 0 && m.own.frames[n-1].Continues() {
		n++
	}
	if n == 0 {
		return false
	}
	m.read(m.own.frames[:n])
	m.own.n = copy(m.own.frames[:], m.own.frames[n:m.own.n])
	return true
}
