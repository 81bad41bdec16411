package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
)

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
