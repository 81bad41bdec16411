package channel

import (
	"context"
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/rdma/connect"
)

// errBetterPath ends a connection because a path that is preferred is well again.
var errBetterPath = errors.New("a path that is preferred is well again")

// offer is a connection that the worker does not use yet.
type offer struct {
	link *link
	conn *connect.Conn
}

func (o *offer) close() error { return errors.Join(o.link.pair.Close(), o.conn.Close()) }

// comeback tries the paths that are preferred to that of the present connection.
type comeback struct {
	s       *Sender
	better  []*path
	offers  chan *offer
	stop    chan struct{} // closed when the connection has ended
	done    chan struct{} // closed when the goroutine has ended
	late    *offer        // made when the connection had ended already
	unlucky bool          // an attempt failed that was being made when the connection ended
}

// comeBack begins to try the paths that are preferred to the present one; nil: there is none. ctx is that of Run.
func (s *Sender) comeBack(ctx context.Context) *comeback {
	if s.path == s.paths[0] {
		return nil
	}
	b := &comeback{s: s, offers: make(chan *offer), stop: make(chan struct{}), done: make(chan struct{})}
	for _, p := range s.paths {
		if p == s.path {
			break
		}
		b.better = append(b.better, p)
	}
	go func() {
		defer close(b.done)
		b.run(ctx)
	}()
	return b
}

// offered returns the channel of the connection over a better path; nil: none ever comes. b may be nil.
func (b *comeback) offered() <-chan *offer {
	if b == nil {
		return nil
	}
	return b.offers
}

// stopComingBack ends the attempts. One that has begun is completed, because the peer may have given up the present
// connection for it already.
func (s *Sender) stopComingBack(b *comeback) {
	if b == nil {
		return
	}
	close(b.stop)
	<-b.done
	if b.late != nil {
		s.taken = b.late
	}
	s.disturbed = b.unlucky
}

func (b *comeback) run(ctx context.Context) {
	for {
		p := b.next()
		t := time.NewTimer(time.Until(p.Rest()))
		select {
		case <-t.C:
		case <-b.stop:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil || b.stopped() {
			return
		}
		l, conn, err := b.s.dial(ctx, p)
		if err != nil {
			p.Leaves(err)
			b.unlucky = b.stopped()
			continue
		}
		o := &offer{l, conn}
		select {
		case b.offers <- o:
		case <-b.stop:
			b.late = o
		}
		return
	}
}

func (b *comeback) stopped() bool {
	select {
	case <-b.stop:
		return true
	default:
		return false
	}
}

// next returns the path that is tried next.
func (b *comeback) next() *path {
	next := b.better[0]
	for _, p := range b.better {
		if p.Rest().Before(next.Rest()) {
			next = p
		}
	}
	return next
}

// forgo gives up a connection that was not used.
func (s *Sender) forgo() error {
	if s.taken == nil {
		return nil
	}
	o := s.taken
	s.taken = nil
	return o.close()
}
