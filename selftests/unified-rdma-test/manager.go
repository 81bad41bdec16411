package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce"
	rocecm "github.com/unifiedd/unifiedd/rdma/roce/cm"
)

// appointment says where the server waits for the client's queue pair, through rdma_cm. The client
// presents the token, which identifies it as the client of the handshake.
type appointment struct {
	At    netip.AddrPort // an unspecified address means the one that the client dialled
	Token []byte
}

const tokenBytes = 16

// waiting is the server's side of an appointment. It is nil without -R.
type waiting struct {
	*session
	listener cm.Listener
	appointment
}

// waiting listens for the client's queue pair, if the job uses rdma_cm.
func (s *session) waiting(j job) (*waiting, error) {
	if !j.Manager {
		return nil, nil
	}
	if err := s.openManager(); err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	if gid := s.settings.GID; gid.Type == rdma.RoCE2 && !gid.GID.IsLinkLocal() {
		at = netip.AddrPortFrom(gid.GID.Addr(), 0)
	}
	w := &waiting{session: s}
	var err error
	w.listener, err = keep(s, func(at netip.AddrPort) (cm.Listener, error) { return s.manager.Listen(at, 0) }, at)
	if err != nil {
		return nil, err
	}
	w.At, w.Token = w.listener.Addr(), make([]byte, tokenBytes)
	_, err = rand.Read(w.Token)
	return w, err
}

// openManager opens the kernel's connection manager, or that of RoCE in software.
func (s *session) openManager() (err error) {
	if s.manager != nil {
		return nil
	}
	open := func(d rdma.Device) (cm.Manager, error) {
		if soft, is := d.(*roce.Device); is {
			return rocecm.Open(soft, rocecm.Config{})
		}
		channel, err := cm.Open()
		if err != nil {
			return nil, err
		}
		return channel, nil
	}
	s.manager, err = keep(s, open, s.device)
	return err
}

// hello is the server's message to the client.
func (w *waiting) hello() []byte {
	if w == nil {
		return nil
	}
	b, _ := json.Marshal(w.appointment) // cannot fail: an address and bytes
	return b
}

// meet connects the queue pair with the client's. It refuses other clients.
func (w *waiting) meet(ctx context.Context, q rdma.QueuePair, local connect.Parameters) error {
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.options.replyTimeout)
	defer cancel()
	for {
		r, err := w.listener.Accept(ctx)
		if err != nil {
			return fmt.Errorf("wait for the client's queue pair on %v, through rdma_cm: %w", w.At, err)
		}
		if !w.expected(r) {
			if err := r.Reject([]byte("another client is waited for")); err != nil {
				return err
			}
			continue
		}
		if err := w.sameDevice(r.Address()); err != nil {
			return errors.Join(err, r.Close())
		}
		w.through, err = w.accept(ctx, r, w.managed(q, local))
		return err
	}
}

func (w *waiting) expected(r cm.Request) bool {
	said := r.Private()
	return len(said) >= tokenBytes && subtle.ConstantTimeCompare(said[:tokenBytes], w.Token) == 1
}

// managed returns our end, with the parameters of the handshake.
func (s *session) managed(q rdma.QueuePair, local connect.Parameters) cm.End {
	return cm.End{Queue: q, Reads: local.MaxReads, RemoteReads: local.MaxRemoteReads, Retries: s.settings.Retries, RNRRetries: s.settings.RNRRetries,
		MinRNRTimer: s.settings.MinRNRTimer, Timeout: s.settings.Timeout}
}

// accept connects a queue pair in INIT with the client's.
func (s *session) accept(ctx context.Context, r cm.Request, e cm.End) (cm.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.replyTimeout)
	defer cancel()
	conn, err := r.Accept(ctx, e)
	if err == nil {
		s.cleanup.Then(conn.Close)
	}
	return conn, err
}

// listenAnywhere listens on all addresses, on the user's port.
func (s *session) listenAnywhere() (cm.Listener, error) {
	listen := func(a netip.Addr) (cm.Listener, error) {
		return s.manager.Listen(netip.AddrPortFrom(a, uint16(s.options.port)), 0)
	}
	l, err := keep(s, listen, netip.IPv6Unspecified())
	if errors.Is(err, unix.EAFNOSUPPORT) {
		l, err = keep(s, listen, netip.IPv4Unspecified())
	}
	return l, err
}

// sameDevice returns an error if the route to the peer uses another device than the user's.
func (s *session) sameDevice(p cm.DeviceAddress) error {
	if p.Device != s.device.Name() || p.Port != s.settings.Port {
		return fmt.Errorf("%v leads over another RDMA device than %s: name %s, or another address", p, s.device.Name(), p.Device)
	}
	return nil
}

// meet is the client's side. It connects to the address in the server's hello.
func (s *session) meet(ctx context.Context, dialled string, c *connect.Conn, q rdma.QueuePair, local connect.Parameters, wanted bool) error {
	if !wanted {
		return nil
	}
	var a appointment
	if json.Unmarshal(c.Remote().Hello, &a) != nil || len(a.Token) != tokenBytes || !a.At.IsValid() {
		return errors.New("the server does not say where it waits through rdma_cm: check that it is of the same version")
	}
	if a.At.Addr().IsUnspecified() {
		to, err := netip.ParseAddrPort(dialled)
		if err != nil {
			return err
		}
		a.At = netip.AddrPortFrom(to.Addr(), a.At.Port())
	}
	if err := s.openManager(); err != nil {
		return err
	}
	e := s.managed(q, local)
	e.Private = a.Token
	conn, err := s.join(ctx, a.At, e)
	s.through = conn
	return err
}

// over returns why a connection through rdma_cm has ended. It is nil while the connection exists,
// or without rdma_cm.
func (s *session) over() error {
	if s.through == nil {
		return nil
	}
	return s.through.Err()
}

// join connects a queue pair in INIT with the server's.
func (s *session) join(ctx context.Context, to netip.AddrPort, e cm.End) (cm.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.replyTimeout)
	defer cancel()
	route, err := s.manager.Resolve(ctx, cm.Path{To: to, Service: uint8(s.options.tclass)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = route.Close() }()
	if err := s.sameDevice(route.Address()); err != nil {
		return nil, err
	}
	conn, err := route.Connect(ctx, e)
	if err == nil {
		s.cleanup.Then(conn.Close)
	}
	return conn, err
}
