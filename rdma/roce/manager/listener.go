package manager

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma/cm"
)

// listener has requests to a port.
type listener struct {
	manager  *Manager
	at       netip.AddrPort
	port     uint16
	device   string
	requests chan *connection
	done     chan struct{}
	once     sync.Once
}

// Listen listens as package cm says.
func (m *Manager) Listen(at netip.AddrPort, backlog int) (cm.Listener, error) {
	if backlog < 1 {
		backlog = cm.DefaultBacklog
	}
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	l := &listener{manager: m, at: at, port: at.Port(), device: m.device.Name(), requests: make(chan *connection, backlog), done: make(chan struct{})}
	if err := m.listen(l); err != nil {
		return nil, fmt.Errorf("listen on %v through %v: %w", at, m.device, err)
	}
	return l, nil
}

// firstPort is the first of those that are given to who names none.
const firstPort = 49152

func (m *Manager) listen(l *listener) error {
	if err := m.ours(l.at.Addr()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return err
	}
	x := m.machine
	for port := uint32(firstPort); l.port == 0; port++ {
		if port > 0xffff {
			return fmt.Errorf("no port is free: %w", unix.EADDRINUSE)
		}
		if len(x.ports[uint16(port)]) == 0 {
			l.port = uint16(port)
			l.at = netip.AddrPortFrom(l.at.Addr(), l.port)
		}
	}
	for _, other := range x.ports[l.port] {
		if other.at.Addr() == l.at.Addr() || other.takes(l.at.Addr()) || l.takes(other.at.Addr()) {
			return fmt.Errorf("%w (%v is listened on already: end that, or take another port)", unix.EADDRINUSE, other.at)
		}
	}
	x.ports[l.port] = append(x.ports[l.port], l)
	m.listeners = append(m.listeners, l)
	return nil
}

// ours refuses an address that the device has not.
func (m *Manager) ours(a netip.Addr) error {
	if !a.IsValid() || a.IsUnspecified() {
		return nil
	}
	table, err := m.device.GIDs(1)
	if err != nil {
		return err
	}
	for _, e := range table {
		if e.GID.Addr() == a {
			return nil
		}
	}
	return fmt.Errorf("%w (the address is none of %v's)", unix.EADDRNOTAVAIL, m.device)
}

// Addr is where it listens.
func (l *listener) Addr() netip.AddrPort { return l.at }

// Accept leaves out requests that are over before somebody sees them.
func (l *listener) Accept(ctx context.Context) (cm.Request, error) {
	for {
		select {
		case c := <-l.requests:
			if l.manager.take(c) {
				return &request{manager: l.manager, c: c}, nil
			}
		case <-l.done:
			return nil, fmt.Errorf("listen on %v through %v: %w", l.at, l.manager.device, cm.ErrClosed)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take counts a request as held, unless it is over.
func (m *Manager) take(c *connection) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.noticed {
		return false
	}
	m.held++
	return true
}

// Close ends listening.
func (l *listener) Close() error {
	l.once.Do(func() {
		m := l.manager
		m.do(func(x *machine) {
			same := func(o *listener) bool { return o == l }
			if x.ports[l.port] = slices.DeleteFunc(x.ports[l.port], same); len(x.ports[l.port]) == 0 {
				delete(x.ports, l.port)
			}
			m.listeners = slices.DeleteFunc(m.listeners, same)
			l.refuseAll(x)
		})
		close(l.done)
	})
	return nil
}

// refuseAll refuses the requests that nobody has taken.
func (l *listener) refuseAll(x *machine) {
	for {
		select {
		case c := <-l.requests:
			x.hangUp(c, cm.ErrClosed)
		default:
			return
		}
	}
}
