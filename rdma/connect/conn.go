package connect

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// keepAlive detects a dead machine after twenty seconds of silence. unacknowledged is the same
// limit for data that the peer does not acknowledge.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

const unacknowledged = 20 * time.Second

// watch makes the kernel give up on a peer that does not acknowledge for a time: TCP_USER_TIMEOUT, tcp(7).
// By default that takes a quarter of an hour.
func watch(conn net.Conn, limit time.Duration) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // fails only if the connection is closed
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
		})
	}
}

// Conn is the TCP connection of two connected queue pairs. Programs can exchange small messages
// over it. Its end means that the peer is gone; it does not change the queue pair.
type Conn struct {
	conn   net.Conn
	peer   Peer
	remote Offer
	path   Path
	once   sync.Once
	closed error

	credentials *Credentials // nil: plain TCP
	revoked     atomic.Bool
	done        chan struct{} // closed by Close
}

// Peer returns the identity of the other side.
func (c *Conn) Peer() Peer { return c.peer }

// Remote returns the peer's offer. The caller must not change it.
func (c *Conn) Remote() *Offer { return &c.remote }

// Path returns the values that both sides agreed on.
func (c *Conn) Path() Path { return c.path }

// SetDeadline limits Send and Receive, as SetDeadline of net.Conn does.
func (c *Conn) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// Send sends at most MaxHello bytes as one message.
func (c *Conn) Send(text []byte) error {
	if len(text) > MaxHello {
		return fmt.Errorf("message of %d bytes to %v: it has at most %d", len(text), c.peer.Addr, MaxHello)
	}
	if err := writeMessage(c.conn, kindText, text); err != nil {
		return c.wrap("send", err)
	}
	return nil
}

// Receive waits for a message. The error is io.EOF if the peer closed the connection in good order,
// and an *Error if the connection broke or the peer broke the protocol.
func (c *Conn) Receive() ([]byte, error) {
	k, body, err := readMessage(c.conn)
	switch {
	case errors.Is(err, io.EOF):
		return nil, c.wrap("receive", io.ErrUnexpectedEOF)
	case err != nil:
		return nil, c.wrap("receive", err)
	case k == kindBye:
		return nil, io.EOF
	case k == kindRefuse:
		return nil, c.wrap("receive", refusal(body))
	case k != kindText:
		return nil, c.wrap("receive", malformed("%v after the handshake", k))
	}
	return body, nil
}

func (c *Conn) wrap(step string, err error) error {
	if c.revoked.Load() {
		err = errRevoked
	}
	return &Error{Reason: reasonOf(err), Peer: c.peer.Addr.String(), Step: step, Err: err}
}

// byeTime bounds how long Close waits for a peer that does not read.
const byeTime = time.Second

// Close says goodbye and closes the connection. It returns no error if the peer is already gone.
func (c *Conn) Close() error {
	c.once.Do(func() {
		if c.credentials != nil {
			c.credentials.forget(c)
		}
		_ = c.conn.SetWriteDeadline(time.Now().Add(byeTime))
		_ = writeMessage(c.conn, kindBye, nil)
		if err := c.conn.Close(); err != nil && !c.revoked.Load() && reasonOf(err) == ReasonNetwork {
			c.closed = err
		}
		close(c.done)
	})
	return c.closed
}

// Closed returns a channel that is closed when the owner of the connection has called Close.
func (c *Conn) Closed() <-chan struct{} { return c.done }
