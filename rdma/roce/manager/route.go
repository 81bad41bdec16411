package manager

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// route is a way to a peer that is known to be there.
type route struct {
	manager *Manager
	step    string
	way     peerPath
	place   cm.DeviceAddress
	class   uint8
	once    sync.Once // of its end
}

// Resolve finds the address of ours that leads to a peer, and the way there.
func (m *Manager) Resolve(ctx context.Context, p cm.Path) (cm.Route, error) {
	p.To = netip.AddrPortFrom(p.To.Addr().Unmap().WithZone(""), p.To.Port())
	r := &route{manager: m, step: fmt.Sprintf("connect to %v through %v", p.To, m.device), class: p.Service}
	if err := r.resolve(ctx, p); err != nil {
		return nil, fmt.Errorf("%s: find the way: %w", r.step, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return nil, err
	}
	m.held++
	return r, nil
}

func (r *route) resolve(ctx context.Context, p cm.Path) error {
	m := r.manager
	table, err := m.device.GIDs(1)
	if err != nil {
		return err
	}
	if from := p.From.Unmap().WithZone(""); from.IsValid() && !from.IsUnspecified() {
		table = slices.DeleteFunc(table, func(e rdma.GIDEntry) bool { return e.GID.Addr() != from })
	}
	local, err := rdma.ChooseGID(table, p.To.Addr())
	if err != nil {
		return err
	}
	r.way = peerPath{uint8(local.Index), local.GID, rdma.GIDOf(p.To.Addr())}
	source := uint16(firstPort + random()%(1<<16-firstPort))
	r.place = cm.DeviceAddress{Device: m.device.Name(), Port: 1, Local: netip.AddrPortFrom(local.GID.Addr(), source), Remote: p.To}
	return r.look(ctx)
}

// look finds the way to the peer's card.
func (r *route) look(ctx context.Context) error {
	m := r.manager
	m.mu.Lock()
	err := m.usable()
	var l *cachedHandle
	if err == nil {
		l, err = m.gsi.ways.find(r.way, true)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-l.found:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.err != nil {
		return fmt.Errorf("%w: %w", &cm.Error{Step: "find the device", Event: cm.AddressError, Kind: cm.ErrUnreachable, Errno: unix.EHOSTUNREACH}, l.err)
	}
	return nil
}

func (r *route) Address() cm.DeviceAddress { return r.place }

func (r *route) Prepare(q rdma.QueuePair, access rdma.Access) error { return prepare(q, access) }

// Connect asks the peer, and leads the queue pair as it says.
func (r *route) Connect(ctx context.Context, e cm.End) (cm.Conn, error) {
	err := e.Check()
	if err == nil {
		err = most(e.Private, cm.MostToConnect)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.step, err)
	}
	c, err := r.ask(&e)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.step, err)
	}
	if err := r.connect(ctx, c, &e); err != nil {
		r.manager.end(c)
		return nil, err
	}
	return &conn{manager: r.manager, c: c}, nil
}

// ask begins a connection.
func (r *route) ask(e *cm.End) (c *connection, err error) {
	m := r.manager
	m.do(func(x *machine) {
		if err = m.usable(); err != nil {
			return
		}
		if c = x.add(r.way); c == nil {
			err = fmt.Errorf("the connection manager has %d connections, which is the most: end some", m.config.Connections)
			return
		}
		m.held++
		c.place, c.class = r.place, r.class
		x.ask(c, e, mad.Address{From: r.place.Local, To: r.place.Remote.Addr()}, r.place.Remote.Port())
	})
	return c, err
}

func (r *route) connect(ctx context.Context, c *connection, e *cm.End) error {
	m := r.manager
	if _, err := m.await(ctx, c, r.step, cm.ConnectResponse); err != nil {
		return err
	}
	if err := leadUp(c, e, c.ours); err != nil {
		return fmt.Errorf("%s: %w", r.step, err)
	}
	ok := false
	m.do(func(x *machine) { ok = x.confirm(c, e.Queue) })
	if !ok {
		return fmt.Errorf("%s: %w", r.step, m.why(c))
	}
	return nil
}

// Close gives the route back.
func (r *route) Close() error {
	r.once.Do(func() {
		r.manager.mu.Lock()
		defer r.manager.mu.Unlock()
		r.manager.held--
	})
	return nil
}
