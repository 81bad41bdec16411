package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// Dial connects the queue pair of an End with that of the Listener at address. Before, the queue
// pair must be in INIT, with receives posted for the peer's first messages; afterwards it is in
// RTS. If Dial fails the queue pair may be in any state and must be closed or reset; the error is
// an *Error. The caller closes the Conn.
func Dial(ctx context.Context, address string, e End, c Config) (*Conn, error) {
	if err := e.offer().Check(); err != nil {
		return nil, fmt.Errorf("connect queue pairs with %s: our own offer: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	alive := keepAlive
	if c.Silence > 0 {
		alive.Idle, alive.Interval = c.Silence/3, c.Silence/3
	}
	d := net.Dialer{KeepAliveConfig: alive}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, &Error{Reason: reasonOf(err), Peer: address, Step: "reach it over TCP", Err: err}
	}
	s := newSession(ctx, conn)
	if c.Silence > 0 {
		watch(conn, c.Silence)
	}
	if err := s.secure(c.Credentials, tls.Client, c.serverName(address)); err != nil {
		return nil, err
	}
	return s.dial(&e)
}

// serverName returns the name that the server's certificate must have. net.Dial has accepted the
// address.
func (c *Config) serverName(address string) string {
	if c.ServerName != "" {
		return c.ServerName
	}
	host, _, _ := net.SplitHostPort(address)
	return host
}

// dial is the client's side: offer, answer, state changes, ready.
func (s *session) dial(e *End) (*Conn, error) {
	remote, err := s.ask(e.offer(), e.bringToRTS)
	if err != nil {
		return nil, err
	}
	return s.settle(e, remote)
}

func (s *session) ask(o *Offer, lead func(Parameters) error) (Offer, error) {
	if err := writeMessage(s.conn, kindOffer, AppendOffer(nil, o)); err != nil {
		return Offer{}, s.fail("send our offer", err)
	}
	remote, err := s.expectOffer(kindAnswer)
	if err == nil {
		err = sameTransport(o.Parameters, remote.Parameters)
	}
	if err != nil {
		return remote, s.refuse("read the answer", err)
	}
	if err := lead(remote.Parameters); err != nil {
		return remote, s.refuse("bring our queue pair to RTS", err)
	}
	if err := writeMessage(s.conn, kindReady, nil); err != nil {
		return remote, s.fail("say that we are ready", err)
	}
	return remote, nil
}
