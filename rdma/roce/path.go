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

// path is the route to a peer, with the headers of packets to it.
type path struct {
	template wire.Template
	loopback bool // the peer is the device itself
	// lead holds the inputs of the path. It is kept so that the path can be made again when the
	// network changes.
	lead *pathSource
}

// pathSource holds the inputs of a path.
type pathSource struct {
	kept          *network.TrackedRoute
	address       rdma.Address
	local, remote uint32 // queue pairs
}

// resolveTimeout is how long to wait for the link-layer address of a neighbour.
const resolveTimeout = 4 * time.Second

// resolve finds the route to an address, for packets between two queue pairs; 0 stands for any. It
// blocks while the kernel resolves the neighbour.
func (d *Device) resolve(ctx context.Context, a *rdma.Address, local, remote uint32) (path, error) {
	if a.GID.IsZero() {
		return path{}, fmt.Errorf("the peer's GID is missing: there are no LIDs on Ethernet")
	}
	if a.SL > 7 {
		return path{}, fmt.Errorf("service level %d: on Ethernet it is the priority of a VLAN's tag, 0 to 7", a.SL)
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	w, err := d.net.Resolve(ctx, int(a.GIDIndex), a.GID)
	if err != nil {
		return path{}, err
	}
	p := path{loopback: w.Local, lead: &pathSource{address: *a, local: local, remote: remote}}
	if p.template, err = p.lead.template(&w); err != nil {
		return path{}, err
	}
	p.lead.kept, err = d.net.Track(w)
	return p, err
}

// template returns the headers of packets on a route.
func (l *pathSource) template(w *network.Route) (wire.Template, error) {
	a := &l.address
	p := wire.Path{Source: w.Source, Destination: w.Destination, SourceMAC: w.SourceMAC, DestinationMAC: w.DestinationMAC, Tags: w.Tags,
		SourcePort: wire.SourcePort(a.FlowLabel, l.local, l.remote), TrafficClass: a.TrafficClass, HopLimit: a.HopLimit, FlowLabel: a.FlowLabel}
	if a.SL > 0 && p.Tags[0].Type != 0 { // else the route has the priority that the VLAN's egress-qos-map gives
		p.Tags[0].TCI = p.Tags[0].TCI&0x1fff | uint16(a.SL)<<13
	}
	if p.HopLimit == 0 {
		p.HopLimit = w.HopLimit
	}
	t, err := wire.NewTemplate(&p)
	if err != nil {
		return t, fmt.Errorf("packets to %v: %w", a.GID, err)
	}
	return t, nil
}

// addPath gives a path a number. The caller holds the lock.
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

// dropPath frees the number. The caller holds the lock.
func (m *datapath) dropPath(at transport.Peer) {
	m.paths[at].lead.kept.Drop()
	m.paths[at] = path{}
	m.free = append(m.free, at)
}

// follow reacts to changes of the network.
func (d *Device) follow() {
	for c, ok := d.net.Next(); ok; c, ok = d.net.Next() {
		switch c.What {
		case network.LinkChanged:
			d.linkChanged(c.Link.Up)
		case network.GIDAdded, network.GIDRemoved:
			d.locked(func() { d.datapath.readLocals(d.net) })
			d.events.add(rdma.Event{Kind: rdma.GIDChange, Port: 1})
		case network.RouteChanged:
			d.routeChanged(c.Tracked)
		case network.RouteLost:
			d.locked(func() { d.datapath.counts.add(routesLost, 1) })
		case network.Gone:
			d.gone()
		}
	}
}

// linkChanged tells the program that the link went up or down.
func (d *Device) linkChanged(up bool) {
	if up == d.progressLoop.up {
		return
	}
	d.progressLoop.up = up
	kind := rdma.PortError
	if up {
		kind = rdma.PortActive
	}
	d.events.add(rdma.Event{Kind: kind, Port: 1})
}

// routeChanged changes the headers of packets to a peer.
func (d *Device) routeChanged(k *network.TrackedRoute) {
	w, err := k.Route()
	if err != nil {
		return // RouteLost has counted it
	}
	d.locked(func() {
		for i := range d.datapath.paths {
			if p := &d.datapath.paths[i]; p.lead != nil && p.lead.kept == k {
				if t, err := p.lead.template(&w); err == nil {
					p.template, p.loopback = t, w.Local
				}
			}
		}
	})
}

// gone puts all queue pairs into ERR, because the interface was removed.
func (d *Device) gone() {
	d.progressLoop.poll = d.progressLoop.poll[:sockets] // otherwise its sockets would always poll readable
	d.events.add(rdma.Event{Kind: rdma.DeviceFatal})
	d.locked(func() {
		for q := range d.pairs {
			if s := q.State(); s != rdma.Reset && s != rdma.Error {
				_ = q.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState, 0) // allowed from every other state
			}
		}
	})
}
