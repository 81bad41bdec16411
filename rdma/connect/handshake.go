package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/internal/printable"
	"github.com/unifiedd/unifiedd/rdma"
)

// DefaultTimeout is the timeout of a handshake if Config.Timeout is 0.
const DefaultTimeout = 10 * time.Second

// Config configures connections. The zero value is plain TCP.
type Config struct {
	// Credentials enable TLS; nil: plain TCP.
	Credentials *Credentials
	// ServerName is the name that the server's certificate must have, for Dial; empty: the host dialled.
	ServerName string
	// Timeout limits a whole handshake; 0: DefaultTimeout.
	Timeout time.Duration
	// Silence is after how long without an answer to keep-alive probes, or to data, a connection made by Dial has failed;
	// 0: 20 s. It is at least 3 s, because the kernel counts the intervals of probes in seconds.
	Silence time.Duration
	// Failed, if not nil, is called for each failed handshake of a Listener, also if
	// Accept of its Request returns the error. It is called by several goroutines.
	Failed func(error)
}

func (c *Config) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return DefaultTimeout
}

// End is one side: a queue pair in INIT and its parameters. Prepare makes the Parameters.
type End struct {
	Queue      rdma.QueuePair
	Settings   Settings
	Parameters Parameters
	Grants     []Grant
	Hello      []byte
	// Elsewhere means that the handshake does not connect the queue pairs: they are connected
	// afterwards by other means, such as package cm. Both sides must set it.
	Elsewhere bool
}

func (e *End) offer() *Offer {
	return &Offer{Parameters: e.Parameters, Grants: e.Grants, Hello: e.Hello}
}

// bringToRTS brings the queue pair to RTS.
func (e *End) bringToRTS(remote Parameters) error {
	if e.Elsewhere {
		return nil
	}
	if err := Lead(e.Queue, e.Settings, e.Parameters, remote); err != nil {
		return &deviceError{err}
	}
	return nil
}

// session is one connection during the handshake. The end of its context makes reads and writes
// fail.
type session struct {
	conn net.Conn
	peer Peer
	ctx  context.Context
	stop func() bool

	credentials *Credentials // nil: plain TCP
	proof       proof
}

func newSession(ctx context.Context, conn net.Conn) *session {
	watch(conn, unacknowledged)
	return &session{conn: conn, peer: Peer{Addr: conn.RemoteAddr()}, ctx: ctx,
		stop: context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })}
}

// fail returns the error of a step, and closes the connection.
func (s *session) fail(step string, err error) error {
	s.stop()
	_ = s.conn.Close()
	if interrupted(err) {
		err = causeOf(s.ctx, err)
	}
	return &Error{Reason: reasonOf(err), Peer: s.peer.Addr.String(), Step: step, Err: err}
}

// interrupted reports whether an error may be caused by the end of the context.
func interrupted(err error) bool {
	r := reasonOf(err)
	return r == ReasonTimeout || r == ReasonTLS || r == ReasonCancelled
}

// refuse sends the peer the reason for the end of the connection, if it still can, and fails.
func (s *session) refuse(step string, err error) error {
	if s.ctx.Err() != nil {
		return s.fail(step, err)
	}
	reason := reasonOf(err)
	text := string(reason)
	if reason == ReasonRefused || reason == ReasonVersion || reason == ReasonFormat {
		text = err.Error()
	}
	_ = writeMessage(s.conn, kindRefuse, []byte(text[:min(len(text), maxRefuse)]))
	s.linger()
	return s.fail(step, err)
}

// Limits of the data that a peer may still send after it was refused.
const (
	lingerTime  = 200 * time.Millisecond
	lingerBytes = 1 << 16
)

// linger reads the data that the peer has still sent. Closing with unread data would reset the
// connection, and the peer would lose our last message.
func (s *session) linger() {
	if c, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	_ = s.conn.SetDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, s.conn, lingerBytes)
}

// settle makes a Conn of the session. The context has no effect on it.
func (s *session) settle(e *End, remote Offer) (*Conn, error) {
	if !s.stop() {
		return nil, s.fail("finish", context.Cause(s.ctx))
	}
	_ = s.conn.SetDeadline(time.Time{})
	c := &Conn{conn: s.conn, peer: s.peer, remote: remote, path: Agree(e.Parameters, remote.Parameters), credentials: s.credentials,
		done: make(chan struct{})}
	if s.credentials != nil {
		if err := s.credentials.track(c, s.proof); err != nil {
			return nil, s.fail("finish", err)
		}
	}
	return c, nil
}

// expect receives a message of one kind, or the peer's refusal as an error.
func (s *session) expect(want kind) ([]byte, error) {
	got, body, err := readMessage(s.conn)
	switch {
	case err != nil:
		return nil, err
	case got == kindRefuse:
		return nil, refusal(body)
	case got != want:
		return nil, malformed("%v instead of %v", got, want)
	}
	return body, nil
}

// expectOffer receives an offer or an answer.
func (s *session) expectOffer(want kind) (Offer, error) {
	body, err := s.expect(want)
	if err != nil {
		return Offer{}, err
	}
	o, err := DecodeOffer(body)
	if err != nil {
		return o, malformed("the peer's %v: %v", want, err)
	}
	return o, nil
}

// refusal is the refusal of a peer. The text is the peer's, so unprintable characters are removed.
func refusal(body []byte) error {
	return &refusedError{"the peer refused: " + printable.Only(string(body), len(body))}
}

// sameTransport refuses a peer with a queue pair of another transport.
func sameTransport(local, remote Parameters) error {
	if local.Transport != remote.Transport {
		return &refusedError{fmt.Sprintf("one side has a %v queue pair and the other a %v one", local.Transport, remote.Transport)}
	}
	return nil
}

// causeOf returns the error of a failed step: the cause of the context's end if it has ended,
// otherwise err.
func causeOf(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("nothing came in time: %w", cause)
	}
	return cause
}
