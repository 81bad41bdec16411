package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// stateLink is a connection to a daemon that has a state.
type stateLink struct {
	address string
	sent    rdma.CompletionQueue
	pair    rdma.QueuePair
	conn    *connect.Conn
	grant   connect.Grant           // of the memory, or only of the head if there are words
	words   connect.Grant           // of the words, if the state has any
	up      context.Context         // ends with the connection, and has the cause
	over    context.Context         // ends with up, or when the state is at another address
	end     context.CancelCauseFunc // of both
	watcher sync.WaitGroup
}

var errLeft = errors.New("the state is at another address now")

// dial connects to a daemon that has the state.
func (s *State) dial(ctx context.Context) (l *stateLink, err error) {
	err = s.where.dial(ctx, connect.Config{Credentials: s.client.config.Credentials}, func(ctx context.Context, address string, c connect.Config) error {
		one := &stateLink{address: address}
		one.up, one.end = context.WithCancelCause(context.Background())
		one.over = one.up
		if err := one.open(ctx, s.client, s.where.flow, c); err != nil {
			return errors.Join(err, one.close())
		}
		l = one
		if s.where.places != nil {
			l.over, _ = stream.Stay(l.up, s.where.places[0], address) // end ends it, too
		}
		l.watcher.Go(l.watch)
		return nil
	})
	return l, err
}

func (l *stateLink) open(ctx context.Context, k *Client, state string, c connect.Config) error {
	settings, err := k.endpoint.SettingsTo(ctx, l.address)
	if err != nil {
		return err
	}
	if l.sent, err = k.device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: mostReads}); err != nil {
		return err
	}
	l.pair, err = k.endpoint.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: l.sent, ReceiveCQ: l.sent,
		SendDepth: mostReads, RecvDepth: 1, SendSGEs: 1, RecvSGEs: 1})
	if err != nil {
		return err
	}
	end := connect.End{Queue: l.pair, Settings: settings}
	if end.Parameters, err = connect.Prepare(k.device, l.pair, settings); err != nil {
		return err
	}
	hello := protocol.Hello{Role: protocol.RoleState, Flow: state}
	if end.Hello, err = hello.Append(nil); err != nil {
		return err
	}
	l.conn, err = connect.Dial(ctx, l.address, end, c)
	return err
}

// watch waits for the end of the connection, and records the cause: the server's last message, or the error.
func (l *stateLink) watch() {
	var said error
	for {
		text, err := l.conn.Receive()
		switch {
		case err == nil:
			said = fmt.Errorf("the server ends it: %q", text)
			continue
		case said != nil:
			err = said
		case errors.Is(err, io.EOF):
			err = errors.New("the server closed the connection")
		}
		l.end(err)
		return
	}
}

// gone returns why the connection has ended; nil: it has not.
func (l *stateLink) gone() error {
	return context.Cause(l.up)
}

// close ends the connection: no READ lands any more. After an error it may be called again.
func (l *stateLink) close() error {
	l.end(errClosed)
	if l.pair != nil {
		if err := l.pair.Close(); err != nil {
			return err
		}
		l.pair = nil
	}
	var errs []error
	if l.conn != nil {
		errs = append(errs, l.conn.Close())
		l.watcher.Wait()
		l.conn = nil
	}
	if l.sent != nil {
		if err := l.sent.Close(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		l.sent = nil
	}
	return errors.Join(errs...)
}

// meet makes a connection that of the state, with mu held. After an error the connection has ended.
func (s *State) meet(l *stateLink) error {
	s.link = l
	if err := s.agree(); err != nil {
		l.end(err)
		return errors.Join(err, l.close())
	}
	s.connections.Add(1)
	if s.followed = s.cause != nil && !s.told; !s.followed {
		s.cause = nil
	}
	return nil
}

// agree checks what the daemon grants, and reads the head of the state.
func (s *State) agree() (err error) {
	l := s.link
	h, err := protocol.ParseHello(l.conn.Remote().Hello)
	if err != nil {
		return err
	}
	if h.Role != protocol.RoleState {
		return fmt.Errorf("%w: the server's hello is not that of one that has a state", protocol.BadKind)
	}
	if l.grant, err = l.conn.Remote().Grant("state"); err != nil {
		return err
	}
	if l.grant.Access != rdma.RemoteRead || l.grant.Length < wire.StateHeadLen {
		return fmt.Errorf("the server grants %d bytes with %v, which is no state", l.grant.Length, l.grant.Access)
	}
	if err := s.get(read{0, wire.StateHeadLen}); err != nil {
		return err
	}
	granted := l.grant.Length
	if l.words, err = l.conn.Remote().Grant("words"); err == nil {
		granted += min(l.words.Length, math.MaxInt64)
	}
	head, err := wire.ParseStateHead(s.bytes(wire.StateHeadLen), granted)
	if err != nil {
		return err
	}
	if head.Kind != wire.Words && head.Len() > l.grant.Length || head.Kind == wire.Words && l.words.Access != rdma.RemoteRead|rdma.RemoteAtomic {
		return fmt.Errorf("the server grants %d bytes of a state of %d, and words with %v", l.grant.Length, head.Len(), l.words.Access)
	}
	if head.Stride > s.frame.Len {
		if err := s.take(head.Stride); err != nil {
			return err
		}
	}
	s.head.Store(&head)
	return nil
}

// check returns why nothing can be read now, with mu held.
func (s *State) check() error {
	err := s.cause
	if err == nil {
		return nil
	}
	s.told = true
	if s.followed {
		s.cause, s.followed = nil, false
	}
	return err
}

// fail ends the connection because of an error that the caller returns, with mu held.
func (s *State) fail(err error) error {
	if gone := s.link.gone(); gone != nil && !errors.Is(err, gone) {
		err = fmt.Errorf("%w (%w)", gone, err)
	}
	s.link.end(err)
	s.cause, s.told = s.disconnected(err), true
	return s.cause
}

func (s *State) disconnected(err error) error {
	return fmt.Errorf("read state %v: %w: %w", s.where, ErrDisconnected, err)
}

// part closes the connection, so that calls return why.
func (s *State) part(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause, s.told = s.disconnected(why), false
	}
	s.followed = false
	return s.link.close()
}

// The times between two attempts to connect again.
const (
	leastRetry = 50 * time.Millisecond
	mostRetry  = time.Second
)

// follow connects again when the connection has ended, or when the state is at another address, until ctx ends.
func (s *State) follow(ctx context.Context) {
	log, wait, said := s.client.config.log(), leastRetry, false
	for {
		select {
		case <-s.link.over.Done(): // only this goroutine changes link
		case <-ctx.Done():
			return
		}
		err := s.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			log.Info("connected to the state again", "state", s.where.String(), "address", s.link.address)
			wait, said = leastRetry, false
			continue
		case !said:
			log.Warn("no connection to the state: trying again", "state", s.where.String(), "err", err)
			said = true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, mostRetry)
	}
}

// renew replaces the connection. One that works is used until there is another one.
func (s *State) renew(ctx context.Context) error {
	if gone := s.link.gone(); gone != nil {
		if err := s.part(gone); err != nil {
			return err
		}
	}
	next, err := s.dial(ctx)
	if err != nil {
		return err
	}
	if err := s.part(errLeft); err != nil {
		return errors.Join(err, next.close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meet(next)
}
