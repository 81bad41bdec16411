package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// pathCapability is what the sender's hello says of the path that is dialed.
func (s *Sender) pathCapability() uint64 {
	if !s.config.Active {
		return 0
	}
	return protocol.WithPath(s.path.number)
}

// Why a sender that may use all paths at the same time uses one.
var (
	singleWrites = "the receiver takes messages by WRITE, which go over one path at a time"
	singleOrder  = "the receiver does not restore the order of messages that come over several paths"
)

// whySingle returns why a link is the only one although there may be several; nil: it is not, or must be.
func (s *Sender) whySingle(l *link) *string {
	switch {
	case !s.config.Active || l.several:
		return nil
	case l.credits != nil:
		return &singleWrites
	}
	return &singleOrder
}

// single is whySingle of the last connection, for Stats.
func (s *Sender) single() string {
	if why := s.stats.single.Load(); why != nil {
		return *why
	}
	return ""
}

// carrier keeps a link over each path, until all have failed at the same time. Each path has a goroutine.
type carrier struct {
	s       *Sender
	do      Doer
	session uint64
	ctx     context.Context // ends when all links have failed, too
	cancel  context.CancelFunc
	all     sync.WaitGroup
	mu      sync.Mutex
	cause   error // of the end of the last link, or a fatalError
}

// carry keeps links over all paths, with a first one that the worker has. It returns why the last one has failed.
func (s *Sender) carry(ctx context.Context, do Doer, first *link, conn *connect.Conn) error {
	c := &carrier{s: s, do: do, session: s.session}
	c.ctx, c.cancel = context.WithCancel(ctx)
	defer c.cancel()
	for _, p := range s.paths {
		c.all.Add(1)
		s.spawn(func() {
			defer c.all.Done()
			if p == first.path && !c.serve(first, conn) {
				return
			}
			c.keep(p)
		})
	}
	c.all.Wait()
	if _, fatal := errors.AsType[*fatalError](c.cause); fatal {
		return c.cause
	}
	return fmt.Errorf("%w: %w", errAllFailed, c.cause)
}

// keep connects over a path, again and again.
func (c *carrier) keep(p *senderPath) {
	for c.rest(p) {
		l, conn, err := c.connect(p)
		switch {
		case c.ctx.Err() != nil && err != nil:
			return
		case err != nil:
			c.fails(p, err)
			continue
		}
		p.Takes()
		c.s.config.Log.Info("connected to receiver over another path", "sender", c.s.config.Name, "device", p.device, "address", p.address)
		if !c.serve(l, conn) {
			return
		}
	}
}

// fails records that an attempt has failed. The log has the first one since the path was connected as a warning.
func (c *carrier) fails(p *senderPath, cause error) {
	before := p.current()
	p.Leaves(cause)
	if before.state != PathFailed || before.cause != cause.Error() {
		c.s.config.Log.Warn("no connection over a path: trying again", "sender", c.s.config.Name, "device", p.device, "address", p.address, protocol.LogReason(cause), "err", cause)
	}
}

// rest waits until a path may be tried, and reports whether it is still wanted.
func (c *carrier) rest(p *senderPath) bool {
	t := time.NewTimer(time.Until(p.rest))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ctx.Done():
	}
	return c.ctx.Err() == nil
}

// connect makes a link over a path, and gives it to the worker.
func (c *carrier) connect(p *senderPath) (l *link, conn *connect.Conn, err error) {
	var from uint64
	if err := onWorker(c.do, func() { from = c.s.confirm - c.s.begun + 1 }); err != nil {
		return nil, nil, c.ends(err)
	}
	a := c.s.dialer(p, c.session)
	l, conn, hello, err := a.dial(c.ctx, from)
	if err != nil {
		return nil, nil, errors.Join(err, c.forget(p))
	}
	var refused error
	if err := onWorker(c.do, func() { refused = c.s.joins(l, &hello, from) }); err != nil {
		return nil, nil, errors.Join(c.ends(err), conn.Close(), l.pair.Close())
	}
	if refused != nil {
		return nil, nil, errors.Join(refused, conn.Close(), c.close(l.pair), c.forget(p))
	}
	return l, conn, nil
}

// forget makes the worker remove the completions of a link that it did not get.
func (c *carrier) forget(p *senderPath) error {
	if err := onWorker(c.do, func() { c.s.clearQueue(p) }); err != nil {
		return c.ends(err)
	}
	return nil
}

// close closes the queue pair of a link.
func (c *carrier) close(pair rdma.QueuePair) error {
	if err := pair.Close(); err != nil {
		return c.ends(&fatalError{fmt.Errorf("close the queue pair: %w", err)})
	}
	return nil
}

// serve waits for the end of a link, and closes it. It reports whether other links go on.
func (c *carrier) serve(l *link, conn *connect.Conn) (others bool) {
	s := c.s
	heard := s.watch(c.ctx, c.do, l, conn, l.broken, nil, nil)
	var cause error
	var over bool
	if err := onWorker(c.do, func() { cause, over = s.detachLink(l) }); err != nil {
		_ = errors.Join(c.ends(err), conn.Close(), l.pair.Close())
		return false
	}
	why := primaryCause(heard, cause)
	if over {
		_ = c.ends(why)
	}
	if cause == nil && errors.Is(heard, context.Canceled) {
		l.path.Leaves(nil)
	} else {
		l.path.Leaves(why)
	}
	s.config.Log.Info("a path ended", "sender", s.config.Name, "device", l.path.device, "address", l.path.address, protocol.LogReason(why), "err", why)
	_ = conn.Close() // the peer may be gone
	if c.close(l.pair) != nil {
		return false
	}
	if err := onWorker(c.do, func() { s.releasedLink(l) }); err != nil {
		_ = c.ends(err)
		return false
	}
	return !over
}

// ends records why the last link has ended, or why Run must end, and ends the attempts over other paths.
func (c *carrier) ends(cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, fatal := errors.AsType[*fatalError](c.cause); !fatal {
		c.cause = cause
	}
	c.cancel()
	return cause
}
