package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultHandshakes is how many peers are dealt with at once where Config.Handshakes is 0.
const DefaultHandshakes = 16

// pause is how long a listener waits when the system has no more files or memory.
const pause = 50 * time.Millisecond

// Listener takes offers.
type Listener struct {
	config   Config
	tcp      net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	requests chan *Request
	slots    chan struct{} // one in it for each peer that is dealt with
	all      sync.WaitGroup
	taken    atomic.Uint64
	failed   map[Reason]*atomic.Uint64
}

// Listen listens at a TCP address, such as ":18516". The Listener is the caller's to close,
// and ends with the context.
func Listen(ctx context.Context, address string, c Config) (*Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	tcp, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for queue pairs to connect: %w", err)
	}
	n := c.Handshakes
	if n <= 0 {
		n = DefaultHandshakes
	}
	l := &Listener{config: c, tcp: tcp, requests: make(chan *Request), slots: make(chan struct{}, n), failed: make(map[Reason]*atomic.Uint64)}
	for _, r := range Reasons {
		l.failed[r] = new(atomic.Uint64)
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	context.AfterFunc(l.ctx, func() { _ = tcp.Close() })
	l.all.Go(l.run)
	return l, nil
}

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Connected is how many queue pairs were connected.
func (l *Listener) Connected() uint64 { return l.taken.Load() }

// Failures is how many handshakes failed, by reason. It has every reason.
func (l *Listener) Failures() map[Reason]uint64 {
	all := make(map[Reason]uint64)
	for r, n := range l.failed {
		all[r] = n.Load()
	}
	return all
}

// Handshakes is how many peers are being dealt with.
func (l *Listener) Handshakes() int { return len(l.slots) }

// Accept waits for a peer's offer. The error is net.ErrClosed once the Listener is closed.
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	select {
	case r := <-l.requests:
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends listening, and every handshake that is not complete. Connections stay.
func (l *Listener) Close() error {
	l.cancel()
	err := l.tcp.Close()
	l.all.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// run takes peers as there are places for them.
func (l *Listener) run() {
	for {
		conn, err := l.tcp.Accept()
		switch {
		case err == nil:
			l.place(conn)
		case l.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			l.fail(&Error{Reason: ReasonNetwork, Peer: "anybody", Step: "accept over TCP", Err: err})
			time.Sleep(pause)
		}
	}
}

// place waits for a place for one peer.
func (l *Listener) place(conn net.Conn) {
	select {
	case l.slots <- struct{}{}:
		l.all.Go(func() { l.greet(conn) })
	case <-l.ctx.Done():
		_ = conn.Close()
	}
}

// greet reads a peer's offer, hands it to whoever accepts, and waits until the handshake
// ends, well or not.
func (l *Listener) greet(conn net.Conn) {
	ctx, cancel := context.WithTimeout(l.ctx, l.config.timeout())
	s := newSession(ctx, conn)
	r := &Request{listener: l, session: s, cancel: cancel}
	if err := r.open(); err != nil {
		r.end(err)
		return
	}
	select {
	case l.requests <- r:
		<-ctx.Done()
	case <-ctx.Done():
	}
	r.expire()
}

func (l *Listener) fail(err error) {
	l.failed[ReasonOf(err)].Add(1)
	if l.config.Failed != nil {
		l.config.Failed(err)
	}
}
