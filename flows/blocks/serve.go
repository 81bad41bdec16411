package blocks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// rnrRetries bounds the retries of an answer whose peer has no receive. A client posts receives
// before it sends requests, so one is missing only if the client breaks the protocol.
const rnrRetries = 6

// errEnded is the cause for ending clients when Serve ends.
var errEnded = fmt.Errorf("%w: nothing is served any more", protocol.Closing)

// Serve accepts clients from a listener until ctx ends, and then ends them. do runs functions on
// the server's thread. The caller closes the listener. Serve may be called from any goroutine, and
// for several listeners.
func (s *Server) Serve(ctx context.Context, l *connect.Listener, do stream.Doer) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		r, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("block server %s: accept clients: %w", s.config.Name, err)
		}
		clients.Go(func() { s.serve(ctx, r, do) })
	}
}

// serve serves a client until it is gone.
func (s *Server) serve(ctx context.Context, r *connect.Request, do stream.Doer) {
	log := s.config.Log.With("server", s.config.Name, "client", r.Peer().String())
	g := handshake{server: s, do: do, request: r}
	if err := g.accept(); err != nil {
		log.Warn("client refused", protocol.LogReason(err), "err", err)
		return
	}
	log.Info("client connected")
	if err := g.stay(ctx); err != nil {
		log.Warn("client connection ended", protocol.LogReason(err), "err", err)
		return
	}
	log.Info("client disconnected")
}

// handshake is a client's state in Serve's goroutine.
type handshake struct {
	server  *Server
	do      stream.Doer
	request *connect.Request
	session *session // belongs to the server's thread
	leaving *closeState
	conn    *connect.Conn
}

// accept connects the client or refuses it.
func (g *handshake) accept() error {
	may, err := g.admit()
	if err == nil {
		err = g.sit(may)
	}
	if err != nil {
		g.server.count.turnAway(err)
		return errors.Join(err, g.request.Refuse(err.Error()))
	}
	end, err := g.prepare()
	if err != nil {
		g.server.count.turnAway(err)
		return errors.Join(err, g.request.Refuse("the server cannot take another client now"), g.leave(err))
	}
	if g.conn, err = g.request.Accept(end); err != nil {
		return errors.Join(err, g.leave(err))
	}
	return nil
}

// admit checks the client's hello.
func (g *handshake) admit() (Range, error) {
	c := &g.server.config
	h, err := protocol.ParseHello(g.request.Remote().Hello)
	switch {
	case err != nil:
		return Range{}, err
	case h.Role != protocol.RoleBlocks:
		return Range{}, fmt.Errorf("%w: blocks are served here, and the peer wants %v", protocol.BadKind, h.Role)
	case h.Flow != "" && h.Flow != c.Flow:
		return Range{}, fmt.Errorf("%w: flow %q is served here, not %q", protocol.NotPermitted, c.Flow, h.Flow)
	}
	if !c.AllowAnyGID {
		if err := c.Endpoint.CheckGID(g.request); err != nil {
			return Range{}, err
		}
	}
	if c.Permit == nil {
		return Range{}, nil
	}
	may, err := c.Permit(g.request.Peer(), h)
	if _, is := errors.AsType[protocol.Reason](err); err != nil && !is {
		err = fmt.Errorf("%w: %w", protocol.NotPermitted, err)
	}
	return may, err
}

// sit takes a free session.
func (g *handshake) sit(may Range) error {
	peer := g.request.Peer()
	w := clientInfo{name: peer.Name, address: peer.Addr.String(), since: time.Now()}
	return g.do(func() (err error) {
		if g.session, err = g.server.take(may, w); err == nil {
			g.leaving = g.session.leaving
		}
		return err
	})
}

// prepare makes the queue pair and gives it to the session.
func (g *handshake) prepare() (connect.End, error) {
	s := g.server
	e := s.config.Endpoint
	settings, err := e.Settings(g.request.Local(), g.request.Remote().Parameters.GID.Addr())
	if err != nil {
		return connect.End{}, err
	}
	settings.RNRRetries = rnrRetries
	q, err := e.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: s.sent.Queue, ReceiveCQ: s.came.Queue,
		SendDepth: s.sends(), RecvDepth: s.plan.receives(), SendSGEs: s.perRequest, RecvSGEs: 1})
	if err != nil {
		return connect.End{}, err
	}
	end := connect.End{Queue: q, Settings: settings}
	if end.Parameters, err = connect.Prepare(e.Device, q, settings); err == nil {
		end.Hello, err = s.hello()
	}
	if err != nil {
		return end, errors.Join(err, q.Close())
	}
	if err := g.do(func() error { return s.attach(g.session, q) }); err != nil {
		return end, errors.Join(err, q.Close())
	}
	return end, nil
}

// hello returns the server's hello.
func (s *Server) hello() ([]byte, error) {
	h := protocol.Hello{Role: protocol.RoleBlocks, Flow: s.config.Flow, Message: s.config.Transfer, Window: uint32(s.plan.window),
		Size: s.plan.size, Align: uint32(s.plan.align)}
	return h.Append(nil)
}

// stay waits until the client is gone, has broken the protocol, or must be ended, and returns the
// cause.
func (g *handshake) stay(ctx context.Context) error {
	gone := make(chan error, 1)
	go func() { gone <- silence(g.conn) }()
	var cause error
	select {
	case cause = <-gone:
		close(gone)
	case <-g.leaving.done:
	case <-ctx.Done():
		cause = errEnded
	}
	if err := g.leave(cause); err != nil {
		cause = errors.Join(cause, err)
	} else if cause = g.leaving.cause; cause != nil {
		_ = g.conn.Send(words(cause)) // fails if the peer is gone already
	}
	err := g.conn.Close()
	<-gone
	return errors.Join(cause, err)
}

// leave ends the client if that has not happened yet. The session may already have another client.
func (g *handshake) leave(cause error) error {
	return g.do(func() error {
		_, _ = g.server.takeSent() // counts answers that have arrived as served; Poll returns the error later
		if g.session.leaving != g.leaving {
			return nil
		}
		return g.server.end(g.session, cause)
	})
}

// silence waits for the end of a connection on which no message is expected. It returns nil if the
// peer closed it in good order.
func silence(c *connect.Conn) error {
	for {
		if _, err := c.Receive(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// words returns the text of a cause for the peer.
func words(cause error) []byte {
	text := cause.Error()
	return []byte(text[:min(len(text), 500)])
}
