package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/internal/netdev"
)

// pause is how long a listener waits when the system has no more files or memory.
const pause = 50 * time.Millisecond

// Listener receives offers.
type Listener struct {
	config   Config
	tcp      net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	requests chan *Request
	pending  pendingSet
	all      sync.WaitGroup
	taken    atomic.Uint64
	failed   map[Reason]*atomic.Uint64
}

// Listen listens at a TCP address, such as ":18516", until ctx ends. The caller closes the
// Listener.
func Listen(ctx context.Context, address string, c Config) (*Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	tcp, err := netdev.Listen(ctx, &config, address)
	if err != nil {
		return nil, fmt.Errorf("listen for queue pairs to connect: %w", err)
	}
	l := &Listener{config: c, tcp: tcp, requests: make(chan *Request), pending: newPendingSet(), failed: make(map[Reason]*atomic.Uint64)}
	for _, r := range Reasons {
		l.failed[r] = new(atomic.Uint64)
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	context.AfterFunc(l.ctx, func() { _ = tcp.Close() })
	l.all.Go(l.run)
	return l, nil
}

// Addr returns where it listens.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Connected returns how many queue pairs were connected.
func (l *Listener) Connected() uint64 { return l.taken.Load() }

// Failures returns how many handshakes failed, by reason. It has every reason.
func (l *Listener) Failures() map[Reason]uint64 {
	all := make(map[Reason]uint64)
	for r, n := range l.failed {
		all[r] = n.Load()
	}
	return all
}

// Handshakes returns how many handshakes are in progress.
func (l *Listener) Handshakes() int { return l.pending.count() }

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

// Close ends listening, and every incomplete handshake. Established connections stay.
func (l *Listener) Close() error {
	l.cancel()
	err := l.tcp.Close()
	l.all.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// run accepts connections. No connection waits for the handshake of another.
func (l *Listener) run() {
	for {
		conn, err := l.tcp.Accept()
		switch {
		case err == nil:
			l.take(conn)
		case l.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			l.fail(&Error{Reason: ReasonNetwork, Peer: "anybody", Step: "accept over TCP", Err: err})
			time.Sleep(pause)
		}
	}
}

// take begins the handshake of a connection, unless there are too many.
func (l *Listener) take(conn net.Conn) {
	ctx, cancel := context.WithTimeout(l.ctx, l.config.timeout())
	ctx, end := context.WithCancelCause(ctx)
	p := newPending(conn, end)
	s := newSession(ctx, conn)
	if err := l.pending.add(p); err != nil {
		p.stage.Stop()
		cancel()
		l.fail(s.fail("take the connection", err))
		return
	}
	r := &Request{listener: l, session: s, pending: p, cancel: cancel}
	l.all.Go(func() { l.greet(r) })
}

// greet reads a peer's offer, passes it to Accept, and waits until the handshake ends.
func (l *Listener) greet(r *Request) {
	if err := r.open(); err != nil {
		r.end(err)
		return
	}
	ctx := r.session.ctx
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
