package roce

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// loopback holds packets to the device's own addresses. They are copied to where the card would
// have put them, and then processed like received packets.
type loopback struct {
	frames  [loopbackFrames]umem.Frame
	n       int
	headers [wire.MaxEnvelopeBytes + wire.MaxHeaderBytes]byte // of one
}

// putLoopback copies a packet into the loopback queue. If there is no frame for it the packet is
// lost, as it would be on a network, and counted.
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

// emptyFrame takes a frame for receiving.
func (m *datapath) emptyFrame() umem.Frame {
	last := len(m.pool.empty) - 1
	f := m.pool.empty[last]
	m.pool.empty = m.pool.empty[:last]
	return f
}

// receiveLoopback processes packets of the loopback queue, and reports whether there were any.
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

// local is an address of the interface, and its VLAN.
type local struct {
	gid rdma.GID
	// vlan is the VLAN tags of a packet without their priorities; zero: untagged.
	vlan vlan
}

// vlan holds the tags of packets on a VLAN, without the bits that do not identify it; zero: no
// tags.
type vlan [wire.MaxTags]wire.Tag

// vlanMask masks the VLAN number in a tag.
const vlanMask = 1<<12 - 1

// vlanOf removes priorities, and tags that have nothing but a priority.
func vlanOf(tags *[wire.MaxTags]wire.Tag) (v vlan) {
	if *tags == (vlan{}) {
		return v
	}
	n := 0
	for _, t := range tags {
		if t.TCI &= vlanMask; t.TCI != 0 {
			v[n] = t
			n++
		}
	}
	return v
}

// readLocals copies the interface's addresses.
func (m *datapath) readLocals(n *network.Interface) {
	m.locals, m.at, m.mine = m.locals[:0], 0, false
	for _, l := range n.Locals() {
		m.locals = append(m.locals, local{l.GID, vlanOf(&l.Tags)})
	}
}

// notFor returns the reason why a packet is not for us: another address and no multicast group, or
// another VLAN than the address has. It returns 0 if the packet is for us.
func (m *datapath) notFor(e *wire.Envelope) counter {
	to := local{e.Destination, vlanOf(&e.Tags)}
	if m.at < len(m.locals) && m.locals[m.at] == to {
		return 0
	}
	group, why := isGroup(&to.gid), notOurs
	if group && to.vlan == (vlan{}) { // where groups are joined
		return 0
	}
	for i := range m.locals {
		l := &m.locals[i]
		switch {
		case l.gid != to.gid && !group:
		case l.vlan == to.vlan, m.stripped && to.vlan == (vlan{}):
			m.at = i
			return 0
		default:
			why = otherVLAN
		}
	}
	return why
}

// isGroup reports whether a GID is a multicast address.
func isGroup(g *rdma.GID) bool {
	const mapped = 12 // where an IPv4 address is
	return g[0] == 0xff || g[10] == 0xff && g[11] == 0xff && g[mapped]>>4 == 0xe && [10]byte(g[:10]) == [10]byte{}
}
