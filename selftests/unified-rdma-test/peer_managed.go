package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/connect/perftest"
)

// conversation is one side of a program of perftest with -R. rdma_cm connects two queue pairs to
// one port: first the one of the conversation, and during it the one that is measured.
type conversation struct {
	*link
	carrier  *carrier
	local    connect.Parameters
	to       netip.AddrPort // the server's address
	listener cm.Listener    // nil for the client
}

// perftestManaged runs the test.
func (o *options) perftestManaged(ctx context.Context, test perftest.Test, out io.Writer) (err error) {
	m := &conversation{}
	if !o.server() {
		peer, err := resolve(ctx, o.where)
		if err != nil {
			return err
		}
		m.to = netip.AddrPortFrom(peer, uint16(o.port))
	}
	s, err := open(*o, m.to.Addr(), o.job.room())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanup.Close()) }()
	if err := s.openManager(); err != nil {
		return err
	}
	if err := m.begin(ctx, s, test, out); err != nil {
		return err
	}
	return m.converse(ctx, m.carrier, test, m.local, func() error { return m.meet(ctx) }, out)
}

// begin connects the queue pair of the conversation.
func (m *conversation) begin(ctx context.Context, s *session, test perftest.Test, out io.Writer) error {
	var request cm.Request
	if s.options.server() {
		var err error
		if m.listener, err = s.listenAnywhere(); err != nil {
			return err
		}
		fmt.Fprintf(out, "waiting for %s -R on port %d of rdma_cm\n", s.options.peer, s.options.port)
		if request, err = m.listener.Accept(ctx); err != nil {
			return err
		}
		s.cleanup.Then(request.Close)
		if err := errors.Join(s.sameDevice(request.Address()), s.chooseGID(request.Peer().Addr())); err != nil {
			return err
		}
	}
	s.settleAs(test.Settings())
	var err error
	if m.link, m.local, err = newLink(ctx, s, s.options.job); err != nil {
		return err
	}
	if m.carrier, err = newCarrier(m.link); err != nil {
		return err
	}
	e := cm.Defaults(m.carrier.qp)
	e.RNRRetries = s.settings.RNRRetries
	if request != nil {
		m.carrier.conn, err = s.accept(ctx, request, e)
	} else {
		m.carrier.conn, err = s.join(ctx, m.to, e)
	}
	return err
}

// meet connects the queue pair that is measured. We may ask before the peer's program listens for it.
func (m *conversation) meet(ctx context.Context) (err error) {
	e := m.managed(m.qp, m.local)
	if m.listener != nil {
		return m.meetClient(ctx, e)
	}
	ctx, cancel := context.WithTimeout(ctx, m.options.replyTimeout)
	defer cancel()
	for {
		m.through, err = m.join(ctx, m.to, e)
		var why *cm.Error
		if !errors.As(err, &why) || why.Reason != cm.ReasonNoListener || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// meetClient accepts the client of the conversation.
func (m *conversation) meetClient(ctx context.Context, e cm.End) error {
	ctx, cancel := context.WithTimeout(ctx, m.options.replyTimeout)
	defer cancel()
	r, err := m.listener.Accept(ctx)
	if err != nil {
		return err
	}
	if peer := m.carrier.conn.Address().Remote.Addr(); r.Peer().Addr() != peer {
		return errors.Join(fmt.Errorf("%v connects while %v is waited for", r.Peer(), peer), r.Close())
	}
	m.through, err = m.accept(ctx, r, e)
	return err
}
