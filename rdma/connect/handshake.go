package connect

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
	"unicode"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect/internal/timed"
)

// DefaultTimeout is how long a handshake may take where Config.Timeout is 0.
const DefaultTimeout = 10 * time.Second

// Config says how to connect. The zero value is plain TCP.
type Config struct {
	// Credentials make it TLS. Nil is plain.
	Credentials *Credentials
	// ServerName is the name that the server's certificate must have, for Dial; empty: the host dialled.
	ServerName string
	// Timeout is for all of a handshake; 0 is DefaultTimeout.
	Timeout time.Duration
	// Failed, where it is not nil, is told of each handshake of a Listener that failed, also where
	// Accept of its Request returns the error. It is called by several goroutines.
	Failed func(error)
}

func (c *Config) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return DefaultTimeout
}

// End is one side: a queue pair in INIT with what is said of it. Prepare makes the Parameters.
type End struct {
	Queue      rdma.QueuePair
	Settings   Settings
	Parameters Parameters
	Grants     []Grant
	Hello      []byte
	// Elsewhere says that the queue pairs are not connected by the handshake, which leaves them alone, but after it
	// by other means, as package cm has. Both sides must say so.
	Elsewhere bool
}

func (e *End) offer() *Offer {
	return &Offer{Parameters: e.Parameters, Grants: e.Grants, Hello: e.Hello}
}

// bringToRTS leads the queue pair to where it can receive and send.
func (e *End) bringToRTS(remote Parameters) error {
	if e.Elsewhere {
		return nil
	}
	if err := Lead(e.Queue, e.Settings, e.Parameters, remote); err != nil {
		return &deviceError{err}
	}
	return nil
}

// session is one connection while the handshake lasts. Its context's end makes reads and
// writes fail.
type session struct {
	conn net.Conn
	peer Peer
	ctx  context.Context
	stop func() bool

	credentials *Credentials // nil: none were shown
	proof       proof
}

func newSession(ctx context.Context, conn net.Conn) *session {
	watch(conn)
	return &session{conn: conn, peer: Peer{Addr: conn.RemoteAddr()}, ctx: ctx,
		stop: timed.Bind(ctx, conn)}
}

// fail is the error of a step, after which the connection is closed.
func (s *session) fail(step string, err error) error {
	s.stop()
	_ = s.conn.Close()
	if interrupted(err) {
		err = timed.Cause(s.ctx, err)
	}
	return &Error{Reason: reasonOf(err), Peer: s.peer.Addr.String(), Step: step, Err: err}
}

// interrupted reports whether an error may come of the context's end.
func interrupted(err error) bool {
	r := reasonOf(err)
	return r == ReasonTimeout || r == ReasonTLS || r == ReasonCancelled
}

// refuse tells the peer why it ends, if it can still be told, and fails.
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

// What a peer may still send while it is told that it is over.
const (
	lingerTime  = 200 * time.Millisecond
	lingerBytes = 1 << 16
)

// linger takes what the peer has still sent: closing in front of it would reset the connection,
// and the peer would lose our last words.
func (s *session) linger() {
	if c, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	_ = s.conn.SetDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, s.conn, lingerBytes)
}

// settle hands the connection over, without the context.
func (s *session) settle(e *End, remote Offer) (*Conn, error) {
	if !s.stop() {
		return nil, s.fail("finish", context.Cause(s.ctx))
	}
	_ = s.conn.SetDeadline(time.Time{})
	c := &Conn{conn: s.conn, peer: s.peer, remote: remote, path: Agree(e.Parameters, remote.Parameters), credentials: s.credentials}
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

// refusal is the peer's no. Its text is the peer's: what is not printable is left out.
func refusal(body []byte) error {
	var text []rune
	for _, r := range string(body) {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			text = append(text, r)
		}
	}
	return &refusedError{fmt.Sprintf("the peer refused: %s", string(text))}
}

// sameTransport refuses a peer with a queue pair of another transport.
func sameTransport(local, remote Parameters) error {
	if local.Transport != remote.Transport {
		return &refusedError{fmt.Sprintf("one side has a %v queue pair and the other a %v one", local.Transport, remote.Transport)}
	}
	return nil
}
