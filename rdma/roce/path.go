package roce

import (
	"context"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// path is the way to a peer, as packets have it in front.
type path struct {
	template wire.Template
	loopback bool // it leads to the device itself
	lead     *lead
}

// lead is what a path was made of.
type lead struct {
	kept          *network.TrackedRoute
	address       rdma.Address
	local, remote uint32 // queue pairs
}

// resolvePatience is how long a neighbour is waited for.
const resolvePatience = 4 * time.Second

// resolve finds the way to an address, for packets between two queue pairs; 0 is any. It waits for the network.
func (d *Device) resolve(ctx context.Context, a *rdma.Address, local, remote uint32) (path, error) {
	if a.GID.IsZero() {
		return path{}, fmt.Errorf("the peer's GID is missing: there are no LIDs on Ethernet")
	}
	ctx, cancel := context.WithTimeout(ctx, resolvePatience)
	defer cancel()
	w, err := d.net.Resolve(ctx, int(a.GIDIndex), a.GID)
	if err != nil {
		return path{}, err
	}
	p := path{loopback: w.Local, lead: &lead{address: *a, local: local, remote: remote}}
	if p.template, err = p.lead.template(&w); err != nil {
		return path{}, err
	}
	p.lead.kept, err = d.net.Track(w)
	return p, err
}

// template is the envelope of packets on a way.
func (l *lead) template(w *network.Route) (wire.Template, error) {
	a := &l.address
	p := wire.Path{Source: w.Source, Destination: w.Destination, SourceMAC: w.SourceMAC, DestinationMAC: w.DestinationMAC, Tags: w.Tags,
		SourcePort: wire.SourcePort(a.FlowLabel, l.local, l.remote), TrafficClass: a.TrafficClass, HopLimit: a.HopLimit, FlowLabel: a.FlowLabel}
	if p.HopLimit == 0 {
		p.HopLimit = w.HopLimit
	}
	t, err := wire.NewTemplate(&p)
	if err != nil {
		return t, fmt.Errorf("packets to %v: %w", a.GID, err)
	}
	return t, nil
}

// addPath gives a path a number. The caller has the lock.
func (m *datapath) addPath(p path) transport.Peer {
	if n := len(m.free); n > 0 {
		at := m.free[n-1]
		m.free = m.free[:n-1]
		m.paths[at] = p
		return at
	}
	m.paths = append(m.paths, p)
	return transport.Peer(len(m.paths) - 1)
}

// dropPath takes a number back. The caller has the lock.
func (m *datapath) dropPath(at transport.Peer) {
	m.paths[at].lead.kept.Drop()
	m.paths[at] = path{}
	m.free = append(m.free, at)
}
