package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// standBy keeps a peer of a group's member that does not lead: its queue pair is connected, and takes no place. When
// the member leads, the peer is told which sequence is expected next, and is one like any other.
func (v *server) standBy(q *connect.Request, h *protocol.Hello, log *slog.Logger) {
	if n := v.standing.Add(1); n > int64(v.config.Peers) {
		v.standing.Add(-1)
		v.turnAway(q, fmt.Errorf("%w: %d peers stand by already", protocol.Busy, n-1))
		return
	}
	defer v.standing.Add(-1)
	e, err := v.newEnd(q)
	if err != nil {
		v.turnAway(q, err)
		log.Warn("peer refused", protocol.LogReason(err), "err", err)
		return
	}
	e.Elsewhere = true // the worker does not know the queue pair yet: it must not receive anything
	answer := v.config.hello(h.Session, 1, 0)
	answer.Capabilities |= protocol.CapabilityStandby
	var conn *connect.Conn
	if e.Hello, err = answer.Append(nil); err == nil {
		conn, err = q.Accept(e)
	}
	if err != nil {
		v.turnAway(q, err)
		log.Warn("peer did not connect", protocol.LogReason(err), "err", errors.Join(err, e.Queue.Close()))
		return
	}
	ctx, cancel := context.WithCancel(v.ctx)
	left := make(chan error, 1)
	v.all.Go(func() {
		left <- hear(conn)
		cancel()
	})
	err = v.config.Standby(ctx)
	cancel()
	var p *peer
	if err == nil {
		who := v.config.senderOf(q.Peer(), h)
		if err = v.supersede(&who); err == nil {
			p, err = v.join(q, h, e.Queue)
		}
	}
	if err != nil {
		tellEnd(conn, err)
		if err := errors.Join(conn.Close(), e.Queue.Close()); err != nil {
			log.Error("could not close a peer", "err", err)
		}
		return
	}
	err = connect.Lead(e.Queue, e.Settings, e.Parameters, conn.Remote().Parameters)
	if err == nil {
		err = v.open(p, conn)
	}
	log.Info("peer connected", "next", p.first, "window", p.window, "stood by", true)
	v.attend(p, conn, left, err, log)
}

// open tells a peer that stood by which sequence is expected next. From then on both sides can send.
func (v *server) open(p *peer, conn *connect.Conn) error {
	h := v.config.hello(p.session.id, p.first, p.window)
	text, err := h.Append(nil)
	if err == nil {
		err = conn.Send(text)
	}
	if err != nil {
		return err
	}
	return v.do(func() error { return v.activate(p) })
}

// attend serves a connected peer to its end. err is why it ends at once; nil: it does not.
func (v *server) attend(p *peer, conn *connect.Conn, left <-chan error, err error, log *slog.Logger) {
	why := err
	if why == nil {
		why = v.watch(p, left)
	}
	err = v.takeDown(p, why)
	tellEnd(conn, why)
	log.Info("peer ended", protocol.LogReason(why), "err", why)
	if err = errors.Join(err, conn.Close()); err != nil {
		log.Error("could not close a peer", "err", err)
	}
}
