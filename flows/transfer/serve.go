package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Why the connection of a sender ends.
var (
	errLeft     = errors.New("the sender has closed the connection")
	errGone     = errors.New("the sender is gone")
	errTalks    = errors.New("the sender sends texts")
	errReplaced = errors.New("another connection of the same sender takes its place")
	errSilent   = errors.New("the sender has said nothing for too long")
)

// abortError is why the sender itself ends.
type abortError struct{ reason protocol.Reason }

func (e *abortError) Error() string { return "the sender ends: " + e.reason.Error() }

func (e *abortError) Unwrap() error { return e.reason }

// Serve lets senders in until ctx ends or the listener is closed. It then ends all connections: what is written becomes durable, and is recorded. It
// returns when the last one has ended. The error says that no more can be accepted. The caller closes the listener.
func (r *Receiver) Serve(ctx context.Context, l *connect.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.all.Wait()
	defer cancel()
	for {
		q, err := l.Accept(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("receive into %s: accept senders: %w", r.config.Path, err)
		}
		r.all.Go(func() { r.serve(ctx, q) })
	}
}

// serve serves one sender until its connection has ended.
func (r *Receiver) serve(ctx context.Context, q *connect.Request) {
	log := r.config.Log.With("peer", q.Peer().String())
	s := &session{receiver: r, offer: q, log: log, over: make(chan struct{})}
	defer close(s.over)
	ctx, s.end = context.WithCancelCause(ctx)
	defer s.end(nil)
	if err := s.admit(ctx); err != nil {
		s.refuse(err)
		log.Warn("a sender was refused", protocol.LogReason(err), "err", err)
		return
	}
	defer r.leave(s)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := s.run(ctx)
	if err == nil {
		return
	}
	if s.connected {
		r.count.ends(err)
	}
	log.Warn("a copy was not completed", "name", s.asked.name, protocol.LogReason(err), "err", err)
}

// refuse counts and refuses a request, unless it was answered already.
func (s *session) refuse(err error) {
	if why, is := reasonIn(err); is {
		s.receiver.count.refused[why].Add(1)
	}
	_ = s.offer.Refuse(sayReason(err)) // fails only if the request was answered already
}

// supersedeTime is how long a connection may take to end when another takes its place.
const supersedeTime = 5 * time.Second

// admit checks a request, and takes a place and the name for it.
func (s *session) admit(ctx context.Context) (err error) {
	r, q := s.receiver, s.offer
	if s.asked, err = parseRequest(q.Remote().Hello); err != nil {
		return err
	}
	if !r.config.AllowAnyGID {
		if err := r.config.Endpoint.CheckGID(q); err != nil {
			return err
		}
	}
	if r.config.Permit != nil {
		if err := r.config.Permit(q.Peer(), protocol.Hello{Role: protocol.RoleTransfer, Session: s.asked.session, Size: s.asked.size}); err != nil {
			return fmt.Errorf("%w: %w", protocol.NotPermitted, err)
		}
	}
	s.owner = ownerOf(q.Peer())
	if r.place.dir != nil {
		if err := checkName(s.asked.name); err != nil {
			return fmt.Errorf("%.100q: %w", s.asked.name, err)
		}
	} else {
		s.asked.name = r.config.Path
	}
	return r.enter(ctx, s)
}

// ownerOf returns the number of a certificate's name; 0 without a certificate.
func ownerOf(p connect.Peer) uint64 {
	if p.Plain {
		return 0
	}
	sum := sha256.Sum256([]byte(p.Name))
	return max(be.Uint64(sum[:]), 1)
}

// enter takes the name and a place. A sender that comes again replaces its earlier connection, which may not have noticed
// yet that it is gone.
func (r *Receiver) enter(ctx context.Context, s *session) error {
	late := time.NewTimer(supersedeTime)
	defer late.Stop()
	for {
		before, err := r.claim(s)
		if before == nil {
			return err
		}
		if before.owner != s.owner || before.asked.identity != s.asked.identity {
			return fmt.Errorf("%w: another sender's copy to %q is in progress", protocol.Busy, s.asked.name)
		}
		before.end(errReplaced)
		select {
		case <-before.over:
		case <-late.C:
			return fmt.Errorf("%w: the earlier connection does not end", protocol.Busy)
		case <-ctx.Done():
			return protocol.Closing
		}
	}
}

// claim takes the name and a place, or returns who has the name.
func (r *Receiver) claim(s *session) (before *session, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.using[s.asked.name]; before != nil {
		return before, nil
	}
	if len(r.using) == r.config.Senders {
		return nil, fmt.Errorf("%w: %d senders are connected, which is the most", protocol.Busy, len(r.using))
	}
	r.using[s.asked.name] = s
	return nil, nil
}

// leave gives the name back.
func (r *Receiver) leave(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.using, s.asked.name)
}

// hear waits until the sender has left.
func hear(conn *connect.Conn) error {
	_, err := conn.Receive()
	switch {
	case err == nil:
		return errTalks
	case errors.Is(err, io.EOF):
		return errLeft
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// finalTime is how long the last words of a connection may take.
const finalTime = 2 * time.Second

// tell sends the sender the cause of the end, and closes the connection.
func (s *session) tell(conn *connect.Conn, cause error) {
	_ = conn.SetDeadline(time.Now().Add(finalTime)) // fails only if it is closed
	if cause != nil && !errors.Is(cause, errLeft) && !errors.Is(cause, errGone) {
		_ = conn.Send([]byte(sayReason(cause))[:min(len(sayReason(cause)), connect.MaxHello)]) // it may be gone
	}
	if err := conn.Close(); err != nil {
		s.log.Info("close the connection of a sender", "err", err)
	}
}
