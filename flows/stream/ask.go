package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// NextOf asks the receiver which message of a session it expects next: of one that has reached it as an origin, see
// [protocol.Origin], or directly. All messages before that one are as safe as the receiver's acknowledgements say,
// unless another sender of the same session is still connected. NextOf repeats the question until ctx ends. Any
// goroutine may call it while the endpoint is open, also while Run connects the sender.
func (s *Sender) NextOf(ctx context.Context, session uint64) (next uint64, err error) {
	a := &Sender{config: s.config, to: newTarget(&s.config), session: session, paths: s.config.listPaths()}
	a.dialBy(a.paths[0])
	wait := backoff{group: a.to.group()}
	before, from := uint64(0), ""
	var why error
	for {
		next, err = a.askOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, errors.Join(context.Cause(ctx), cmp.Or(why, err))
		case err != nil:
			if why = err; a.next(err, false, time.Now()) {
				wait.sleep(ctx, a.to.changed)
			}
		case next == before && a.to.address() == from: // all that was there at the first answer was safe at the second
			return next, nil
		default:
			before, from = next, a.to.address()
		}
	}
}

// askOnce asks the receiver that is dialed now. It needs a queue pair, over which nothing is sent.
func (s *Sender) askOnce(ctx context.Context) (next uint64, err error) {
	at := s.path.endpoint
	if err := s.to.locate(); err != nil {
		return 0, fmt.Errorf("find the receiver: %w", err)
	}
	settings, err := s.settings(ctx)
	if err != nil {
		return 0, err
	}
	queue, err := at.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 2})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, queue.Close()) }()
	pair, err := at.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: queue, ReceiveCQ: queue, SendDepth: 1, RecvDepth: 1, SendSGEs: 1, RecvSGEs: 1})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	local, err := connect.Prepare(at.Device, pair, settings)
	if err != nil {
		return 0, err
	}
	conn, err := s.introduce(ctx, connect.End{Queue: pair, Settings: settings, Parameters: local}, 1, protocol.CapabilityAsk)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	h, err := s.agree(conn)
	if err == nil && h.Capabilities&protocol.CapabilityOrigin == 0 {
		err = fmt.Errorf("%s does not keep which messages of a session it has: it is no log", s.to.address())
	}
	return h.Next, err
}

// tellNext answers a sender that only asks for the next sequence of a session. The session does not begin, and the
// connection takes no place of a peer.
func (v *server) tellNext(q *connect.Request, h *protocol.Hello) error {
	next, err := ask(v.do, func() (uint64, error) { return v.nextOf(h.Session, q.Peer().Name) })
	if err != nil {
		return err
	}
	e, err := v.newEnd(q)
	if err != nil {
		return err
	}
	answer := v.config.hello(h.Session, next, 0)
	if e.Hello, err = answer.Append(nil); err == nil {
		var conn *connect.Conn
		if conn, err = q.Accept(e); err == nil {
			_ = conn.SetDeadline(time.Now().Add(byeTime))
			_ = hear(conn) // until it closes
			err = conn.Close()
		}
	}
	return errors.Join(err, e.Queue.Close())
}

// nextOf returns the sequence that is expected next of a session, without what is not acknowledged of one that sends
// here directly. It belongs to the worker's thread.
func (r *Receiver) nextOf(id uint64, owner string) (uint64, error) {
	if s := r.sessions.byID[id]; s != nil && !s.again {
		if s.owner != owner {
			return 0, ErrOwner
		}
		return s.acknowledged + 1, nil
	}
	next, err := r.config.Next(id, owner)
	return max(next, 1), err
}
