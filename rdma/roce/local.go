package roce

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// local is an address of ours, and the VLAN that it is on.
type local struct {
	gid  rdma.GID
	vlan vlan
}

// vlan is the tags of packets on a VLAN, without what of them does not say which; zero: they have none.
type vlan [wire.MaxTags]wire.Tag

// numberOf is the VLAN's number in a tag.
const numberOf = 1<<12 - 1

// vlanOf leaves priorities out, and tags that have nothing else.
func vlanOf(tags *[wire.MaxTags]wire.Tag) (v vlan) {
	if *tags == (vlan{}) {
		return v
	}
	n := 0
	for _, t := range tags {
		if t.TCI &= numberOf; t.TCI != 0 {
			v[n] = t
			n++
		}
	}
	return v
}

// readLocals notes the interface's addresses.
func (m *datapath) readLocals(n *network.Interface) {
	m.locals, m.at, m.mine = m.locals[:0], 0, false
	for _, l := range n.Locals() {
		m.locals = append(m.locals, local{l.GID, vlanOf(&l.Tags)})
	}
}

// notFor says why a packet is none of ours: it is to another address, and to no group, or on another VLAN than the
// address; 0 of one that is ours.
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

// isGroup says whether a GID is a multicast address.
func isGroup(g *rdma.GID) bool {
	const mapped = 12 // where an IPv4 address is
	return g[0] == 0xff || g[10] == 0xff && g[11] == 0xff && g[mapped]>>4 == 0xe && [10]byte(g[:10]) == [10]byte{}
}
