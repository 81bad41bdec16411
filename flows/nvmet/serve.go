package nvmet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
)

// Parameters of queue pairs. The timeout for an ACK is 268 ms, with six retries, so that a busy
// machine is not mistaken for a dead one. Retries after receiver-not-ready have no limit.
const (
	ackTimeout = 16
	rnrRetries = 7
	// connectLimit bounds the time that a host may take to connect.
	connectLimit = 20 * time.Second
)

// Serve accepts hosts until ctx ends, and then ends all of them. It closes the Listener, and
// returns when the last queue is gone; the error is nil if ctx ended. do must work, and the worker
// must call Poll, until Serve has returned. Close takes down the rest. Serve may be called for
// several listeners at once.
func (s *Server) Serve(ctx context.Context, l cm.Listener, do stream.Doer) error {
	ctx, cancel := context.WithCancel(ctx)
	v := &acceptor{server: s, ctx: ctx, do: do}
	err := v.accept(l)
	cancel()
	end := l.Close()
	v.all.Wait()
	if err = errors.Join(err, end); err != nil {
		return fmt.Errorf("serve NVMe target %s: %w", s.config.Name, err)
	}
	return nil
}

// acceptor is the common state of the goroutines of Serve.
type acceptor struct {
	server *Server
	ctx    context.Context
	do     stream.Doer
	all    sync.WaitGroup
}

func (v *acceptor) accept(l cm.Listener) error {
	for {
		q, err := l.Accept(v.ctx)
		switch {
		case v.ctx.Err() != nil:
			if err == nil {
				err = q.Close()
			} else {
				err = nil
			}
			return err
		case err != nil:
			return err
		}
		v.all.Go(func() {
			(&handshake{acceptor: v, request: q, log: v.server.config.Log.With("target", v.server.config.Name, "peer", q.Peer().String())}).serve()
		})
	}
}

// handshake is one queue pair of a host, from its request to its end.
type handshake struct {
	*acceptor
	request cm.Request
	log     *slog.Logger
	session *session // belongs to the server's thread
	leaving *closeState
	jobs    chan deferredJob
	conn    cm.Conn
}

func (g *handshake) serve() {
	defer g.request.Close()
	if err := g.accept(); err != nil {
		g.turnAway(err)
		return
	}
	cause := g.stay()
	level := slog.LevelInfo
	if !inOrder(cause) {
		level = slog.LevelWarn
		g.server.count.ended.Add(1)
	}
	g.log.Log(context.Background(), level, "queue ended", "err", cause)
}

// inOrder reports whether the host or the server ended a queue on purpose, or whether the cause is
// already counted.
func inOrder(cause error) bool {
	for _, why := range []error{cm.ErrDisconnected, context.Canceled, errHungUp, errReset, errAdminGone, errUnproven, errGaveWay} {
		if errors.Is(cause, why) {
			return true
		}
	}
	return cause == nil
}

// turnAway refuses a request, unless it was answered already.
func (g *handshake) turnAway(err error) {
	reason, is := errors.AsType[fabrics.RejectReason](err)
	if !is {
		reason = fabrics.RejectNoResources
	}
	g.server.count.rejected[reason].Add(1)
	g.log.Warn("queue refused", "err", err)
	if !errors.Is(err, errAccept) {
		_ = g.request.Reject(reason.Bytes())
	}
}

// errAccept marks an error after the request was answered.
var errAccept = errors.New("the host did not finish connecting")

// accept connects the queue pair.
func (g *handshake) accept() error {
	r, reason := fabrics.PrivateRequestOf(g.request.Private())
	if reason == 0 {
		reason = g.check(&r)
	}
	if reason != 0 {
		return reason
	}
	if err := g.sit(&r); err != nil {
		return err
	}
	if err := g.connect(); err != nil {
		return errors.Join(err, g.leave())
	}
	return nil
}

// sit takes a session. It waits for one that is about to become free.
func (g *handshake) sit(r *fabrics.PrivateRequest) error {
	at := g.request.Address()
	for end := time.Now().Add(seatTime); ; time.Sleep(seatAsks) {
		err := g.do(func() (err error) {
			if g.session, err = g.server.take(*r, at.Local, at.Remote.Addr()); err == nil {
				g.leaving, g.jobs = g.session.leaving, g.session.jobs
			}
			return err
		})
		switch {
		case !errors.Is(err, errNoSessionYet):
			return err
		case time.Now().After(end) || g.ctx.Err() != nil:
			return fabrics.RejectNoResources
		}
	}
}

// check checks a host's private data about its queue pair.
func (g *handshake) check(r *fabrics.PrivateRequest) fabrics.RejectReason {
	c := &g.server.config
	if at := g.request.Address(); at.Device != c.Endpoint.Device.Name() || at.Port != c.Endpoint.Port {
		g.log.Warn("a host connected to another RDMA device", "device", at.Device, "port", at.Port, "served", c.Endpoint.Device.Name())
		return fabrics.RejectNoResources
	}
	ours, _ := g.request.Reads()
	switch {
	case int(r.Queue) > c.Queues:
		return fabrics.RejectQueue
	case r.HostSends < 2 || r.HostSends > uint32(c.Depth):
		return fabrics.RejectHostSends
	case ours == 0:
		return fabrics.RejectNoReads
	}
	return 0
}

// connect makes the queue pair and answers the host.
func (g *handshake) connect() error {
	s := g.server
	ctx, cancel := context.WithTimeout(g.ctx, connectLimit)
	defer cancel()
	go func() { // a newer queue may get the session before this one is connected
		select {
		case <-g.leaving.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	q, err := s.config.Endpoint.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: s.sent.Queue, ReceiveCQ: s.came.Queue,
		SendDepth: s.sends(), RecvDepth: s.config.Depth, SendSGEs: 1, RecvSGEs: 2})
	if err != nil {
		return err
	}
	if err := g.request.Prepare(q, 0); err != nil {
		return errors.Join(err, q.Close())
	}
	if err := g.do(func() error { return s.attach(g.session, q) }); err != nil {
		return err
	}
	ours, _ := g.request.Reads()
	end := cm.Defaults(q)
	end.Reads = uint8(min(int(ours), max(s.config.Endpoint.Device.Capabilities().MaxReads, 1), 255))
	end.RemoteReads, end.RNRRetries, end.Timeout = 0, rnrRetries, ackTimeout
	end.Private = fabrics.PrivateReply(uint16(g.session.room))
	if g.conn, err = g.request.Accept(ctx, end); err != nil {
		return fmt.Errorf("%w: %w", errAccept, err)
	}
	return g.do(func() error { s.connected(g.session); return nil })
}

// stay runs deferred jobs of the queue until its host is gone, has broken the protocol, or must go.
// It returns the cause.
func (g *handshake) stay() error {
	for {
		select {
		case c := <-g.jobs:
			if err := c.do(g.do); err != nil {
				return errors.Join(err, g.leave())
			}
		case <-g.conn.Done():
			return errors.Join(g.conn.Err(), g.leave())
		case <-g.leaving.done:
			cause := g.leaving.cause
			if err := g.conn.Err(); errors.Is(err, cm.ErrDisconnected) {
				cause = err
			}
			return errors.Join(cause, g.leave())
		case <-g.ctx.Done():
			return errors.Join(g.ctx.Err(), g.leave())
		}
	}
}

// leave ends the connection and then the queue pair.
func (g *handshake) leave() error {
	var err error
	if g.conn != nil {
		err = g.conn.Close()
	}
	return errors.Join(err, g.do(func() error {
		_, _ = g.server.takeSent() // counts completions that have arrived; Poll returns the error later
		return g.server.leave(g.session)
	}))
}
