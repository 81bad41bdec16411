package roce

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
)

// follow does what changes of the network ask for.
func (d *Device) follow() {
	for c, ok := d.net.Next(); ok; c, ok = d.net.Next() {
		switch c.What {
		case network.LinkChanged:
			d.linkChanged(c.Link.Up)
		case network.GIDAdded, network.GIDRemoved:
			d.locked(func() { d.datapath.readLocals(d.net) })
			d.events.add(rdma.Event{Kind: rdma.GIDChange, Port: 1})
		case network.WayChanged:
			d.wayChanged(c.Tracked)
		case network.WayLost:
			d.locked(func() { d.datapath.counts.add(waysLost, 1) })
		case network.Gone:
			d.gone()
		}
	}
}

// linkChanged tells the program where the link came or went.
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

// wayChanged has packets to a peer look as they must from now on.
func (d *Device) wayChanged(k *network.TrackedRoute) {
	w, err := k.Route()
	if err != nil {
		return // and WayLost is told
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

// gone puts all queue pairs into ERR: the interface does not come back.
func (d *Device) gone() {
	d.progressLoop.poll = d.progressLoop.poll[:sockets] // its sockets only say that they are dead
	d.events.add(rdma.Event{Kind: rdma.DeviceFatal})
	d.locked(func() {
		for q := range d.pairs {
			if s := q.State(); s != rdma.Reset && s != rdma.Error {
				_ = q.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState, 0) // allowed from every state but those
			}
		}
	})
}
