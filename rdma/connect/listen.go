package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// Request is a peer's offer that waits for an answer. Accept or Refuse must answer it within the
// time of the handshake.
type Request struct {
	listener *Listener
	session  *session
	pending  *pending
	remote   Offer
	cancel   context.CancelFunc
	answered atomic.Bool
}

var errAnswered = errors.New("the request was answered before")

// Peer returns the identity of the peer.
func (r *Request) Peer() Peer { return r.session.peer }

// Local returns the address here that the peer has connected to; the zero Addr if it is no IP address.
func (r *Request) Local() netip.Addr {
	tcp, ok := r.session.conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// Remote returns the peer's offer. The caller must not change it.
func (r *Request) Remote() *Offer { return &r.remote }

// open secures the connection and reads the offer.
func (r *Request) open() (err error) {
	s, c, all := r.session, r.listener.config.Credentials, &r.listener.pending
	if err := awaitByte(s.conn); err != nil {
		return s.fail("wait for the first byte", err)
	}
	all.hears(r.pending)
	if c != nil {
		r.pending.within("the TLS handshake", TLSTime)
	}
	if err := s.secure(c, tls.Server, ""); err != nil {
		return err
	}
	if c != nil {
		all.proves(r.pending)
	}
	r.pending.within("the offer", OfferTime)
	if r.remote, err = s.expectOffer(kindOffer); err != nil {
		return s.refuse("read the offer", err)
	}
	r.pending.stage.Stop()
	return nil
}

// end frees the place and counts the result. It is called once.
func (r *Request) end(err error) {
	r.cancel()
	r.listener.pending.done(r.pending)
	if err != nil {
		r.listener.fail(err)
		return
	}
	r.listener.taken.Add(1)
}

// expire ends a request that was not answered.
func (r *Request) expire() {
	if !r.answered.Swap(true) {
		r.end(r.session.fail("wait for this side's program", context.Cause(r.session.ctx)))
	}
}

// Refuse ends the handshake. The peer gets the reason as text of at most 200 bytes.
func (r *Request) Refuse(why string) error {
	if r.answered.Swap(true) {
		return errAnswered
	}
	r.end(r.session.refuse("answer", &refusedError{why}))
	return nil
}

// Accept connects the queue pair of an End with the peer's. Before, the queue pair must be in INIT,
// with receives posted for the peer's first messages; afterwards it is in RTS. It returns when the
// peer can receive. If it fails the queue pair may be in any state and must be closed or reset; the
// error is an *Error. The caller closes the Conn.
func (r *Request) Accept(e End) (*Conn, error) {
	if r.answered.Swap(true) {
		return nil, errAnswered
	}
	conn, err := r.accept(&e)
	r.end(err)
	return conn, err
}

// Cancel makes Accept fail, also while it waits for the peer. Without an answer it ends the request. After Accept it does
// nothing. Any goroutine may call it.
func (r *Request) Cancel() { r.cancel() }

func (r *Request) accept(e *End) (*Conn, error) {
	s := r.session
	if err := e.offer().Check(); err != nil {
		return nil, s.refuse("check our own offer", &refusedError{err.Error()})
	}
	if err := s.answer(e.offer(), r.remote.Parameters, e.bringToRTS); err != nil {
		return nil, err
	}
	return s.settle(e, r.remote)
}

// answer is the server's side: state changes, answer, and wait until the client is ready.
func (s *session) answer(o *Offer, remote Parameters, lead func(Parameters) error) error {
	if err := sameTransport(o.Parameters, remote); err != nil {
		return s.refuse("compare the offers", err)
	}
	if err := lead(remote); err != nil {
		return s.refuse("bring our queue pair to RTS", err)
	}
	if err := writeMessage(s.conn, kindAnswer, AppendOffer(nil, o)); err != nil {
		return s.fail("send our answer", err)
	}
	if _, err := s.expect(kindReady); err != nil {
		return s.refuse("wait until the peer is ready", err)
	}
	return nil
}
