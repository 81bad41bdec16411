package roce

import (
	"context"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/umem"
)

// domain is a protection domain.
type domain struct {
	life   lifetime.Object
	dev    *Device
	number transport.Domain
}

func (p *domain) String() string { return p.life.String() }

// NewProtectionDomain makes a domain.
func (d *Device) NewProtectionDomain() (rdma.ProtectionDomain, error) {
	p := &domain{dev: d}
	if err := p.life.Begin("protection domain of "+d.title, &d.life); err != nil {
		return nil, err
	}
	d.locked(func() {
		d.domains++
		p.number = transport.Domain(d.domains)
	})
	return p, nil
}

func (p *domain) Device() rdma.Device { return p.dev }

func (p *domain) Close() error { return p.life.Close(func() error { return nil }) }

// memory is a registration of the region or of a part of it. Its LKey and RKey are the same.
type memory struct {
	life         lifetime.Object
	dev          *Device
	key          uint32
	addr, length uint64
	access       rdma.Access
	held         *umem.Registration
}

func (m *memory) String() string { return m.life.String() }

func (p *domain) Register(r *umem.Region, a rdma.Access) (rdma.MemoryRegion, error) {
	return p.RegisterPart(r, 0, r.Size(), a)
}

func (p *domain) RegisterPart(r *umem.Region, addr, length uint64, a rdma.Access) (rdma.MemoryRegion, error) {
	switch {
	case r != p.dev.config.Region:
		return nil, fmt.Errorf("register a region with %v: %w: it takes the one region that its provider was made with", p.dev, rdma.ErrUnsupported)
	case a&^rdma.EveryAccess != 0:
		return nil, fmt.Errorf("register memory with rights %#x: %#x is none of them", uint32(a), uint32(a&^rdma.EveryAccess))
	}
	m := &memory{dev: p.dev, addr: addr, length: length, access: a}
	if err := m.life.Begin("memory of "+p.dev.title, &p.life); err != nil {
		return nil, err
	}
	var err error
	p.dev.locked(func() { m.key, err = p.dev.datapath.keys.Register(p.number, addr, length, a) })
	if err != nil {
		m.life.Release()
		return nil, err
	}
	m.held = r.Register(p.dev.String())
	return m, nil
}

func (m *memory) LKey() uint32        { return m.key }
func (m *memory) RKey() uint32        { return m.key }
func (m *memory) Addr() uint64        { return m.addr }
func (m *memory) Length() uint64      { return m.length }
func (m *memory) Access() rdma.Access { return m.access }

// Close ends the registration. It fails while memory windows are bound to it.
func (m *memory) Close() error {
	return m.life.Close(func() (err error) {
		m.dev.locked(func() { err = m.dev.datapath.keys.Deregister(m.key) })
		if err == nil {
			m.held.Release()
		}
		return err
	})
}

// window is a memory window of type 2.
type window struct {
	life lifetime.Object
	dom  *domain
	win  *transport.Window
}

func (w *window) String() string { return w.life.String() }

func (p *domain) NewWindow() (rdma.MemoryWindow, error) {
	w := &window{dom: p}
	if err := w.life.Begin("memory window of "+p.dev.title, &p.life); err != nil {
		return nil, err
	}
	var err error
	p.dev.locked(func() { w.win, err = p.dev.datapath.keys.NewWindow(p.number) })
	if err != nil {
		w.life.Release()
		return nil, err
	}
	return w, nil
}

func (w *window) RKey() uint32 { return w.win.RKey() }

func (w *window) Close() error {
	return w.life.Close(func() error {
		w.dom.dev.locked(func() { w.dom.dev.datapath.keys.CloseWindow(w.win) })
		return nil
	})
}

// handle is an address handle.
type handle struct {
	life lifetime.Object
	dev  *Device
	peer transport.Peer
	id   uint32
}

func (h *handle) String() string { return h.life.String() }

// NewAddressHandle resolves the route to a peer or a multicast group. It waits for the network.
func (p *domain) NewAddressHandle(a rdma.Address) (rdma.AddressHandle, error) {
	return p.dev.NewAddressHandle(context.Background(), p, a)
}

// NewAddressHandle is the same for a protection domain of this device. It returns early if ctx
// ends.
func (d *Device) NewAddressHandle(ctx context.Context, of rdma.ProtectionDomain, a rdma.Address) (rdma.AddressHandle, error) {
	p, ok := of.(*domain)
	if !ok || p.dev != d {
		return nil, fmt.Errorf("make an address handle of %v: the protection domain is of another device", d)
	}
	h := &handle{dev: p.dev}
	if err := h.life.Begin(fmt.Sprintf("address handle of %s to %v", p.dev.title, a.GID), &p.life); err != nil {
		return nil, err
	}
	if err := h.make(ctx, p, &a); err != nil {
		h.life.Release()
		return nil, fmt.Errorf("make %v: %w", h, err)
	}
	return h, nil
}

func (h *handle) make(ctx context.Context, p *domain, a *rdma.Address) error {
	to, err := h.dev.resolve(ctx, a, 0, 0)
	if err != nil {
		return err
	}
	m := &h.dev.datapath
	h.dev.locked(func() {
		h.peer = m.addPath(to)
		if h.id, err = m.engine.NewAddressHandle(p.number, h.peer); err != nil {
			m.dropPath(h.peer)
		}
	})
	return err
}

func (h *handle) ID() uint32 { return h.id }

func (h *handle) Close() error {
	return h.life.Close(func() error {
		h.dev.locked(func() {
			h.dev.datapath.engine.CloseAddressHandle(h.id)
			h.dev.datapath.dropPath(h.peer)
		})
		return nil
	})
}
