package attached

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// Given is a TCP connection of this program on which a flow sends orders. Any goroutine may call its methods.
type Given struct {
	conn   *net.TCPConn
	link   *link
	number uint32
	closed atomic.Pointer[RefusedError]
}

// Give gives an established connection, such as one on which the program has logged in, to a flow whose configuration says
// that this program does. From then on the daemon sends the flow's orders on it. The program keeps the connection, and
// closes it in the end. It may read from it, with [Given.Read], and must not write to it, nor change its options, until
// Close returns nil.
//
// The error matches ErrGone, or is a *RefusedError: bad_descriptor if the connection does not fit, and busy if the flow has
// one. Give does not attach again: Wait of a Sender or Receiver does, and then the program gives another connection.
func (k *Client) Give(flow string, c *net.TCPConn) (*Given, error) {
	k.mu.Lock()
	l := k.link
	k.mu.Unlock()
	if l == nil || !l.alive() {
		return nil, fmt.Errorf("give a connection to flow %s: %w", flow, ErrGone)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("give a connection to flow %s: %w", flow, err)
	}
	var got opened
	outer := raw.Control(func(fd uintptr) { got, err = k.open(l, &wire.Open{Flow: flow, Role: wire.Give}, int(fd)) })
	if err := errors.Join(outer, err); err != nil {
		return nil, fmt.Errorf("give a connection to flow %s: %w", flow, err)
	}
	closeFiles(got.files)
	g := &Given{conn: c, link: l, number: got.Port}
	l.know(g.number, &g.closed)
	return g, nil
}

// Read reads what the exchange has sent, as Read of the connection does, with its deadline. While the daemon tells the
// kernel of an order, for some microseconds, reading is refused (EPERM): Read tries again.
func (g *Given) Read(b []byte) (int, error) {
	for {
		n, err := g.conn.Read(b)
		if !errors.Is(err, unix.EPERM) {
			return n, err
		}
		runtime.Gosched()
	}
}

// Err says why the daemon does not send on the connection any more: a *RefusedError, or ErrGone if the daemon has ended. It
// is nil while it does. After ErrGone nobody knows what the daemon sent last: the program closes the connection.
func (g *Given) Err() error {
	if why := g.closed.Load(); why != nil {
		return why
	}
	if !g.link.alive() {
		return ErrGone
	}
	return nil
}

// Close takes the connection back. It waits until the daemon does not send on it any more. If the error is nil, the program
// may go on to use the connection, unless that has ended. Otherwise it must close the connection.
func (g *Given) Close() error {
	defer g.link.forget(g.number)
	if g.closed.Load() == nil && g.link.alive() {
		if err := g.link.write(&wire.Close{Port: g.number}); err != nil {
			return fmt.Errorf("take a connection back: %w: %w", ErrGone, err)
		}
	}
	for end := time.Now().Add(meetTime); ; time.Sleep(time.Millisecond) {
		switch {
		case g.closed.Load() != nil:
			return nil
		case !g.link.alive():
			return fmt.Errorf("take a connection back: %w", ErrGone)
		case time.Now().After(end):
			return fmt.Errorf("take a connection back: the daemon did not answer for %v", meetTime)
		}
	}
}
