package cm

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// Conn is a connection whose queue pair is in RTS. It is the caller's to close, before the queue pair.
type Conn struct {
	identifier *identifier
	place      Place
	private    []byte
}

// newConn hands a queue pair over to the channel's goroutine, which leads it to ERR at the end of the connection. An
// iWARP device has led it by now: asking for the state has its driver see it.
func newConn(i *identifier, p Place, q rdma.QueuePair, private []byte) (*Conn, error) {
	if _, err := q.State(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	i.queue = q
	i.mu.Unlock()
	select {
	case <-i.done: // before it could see the queue pair
		i.leave()
	default:
	}
	return &Conn{identifier: i, place: p, private: private}, nil
}

func (i *identifier) isLed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.queue != nil
}

// Private is what the peer's program said as it connected or accepted: anything at all, with zeros behind it (see
// the package). It is the caller's.
func (c *Conn) Private() []byte { return c.private }

// Place says where it is.
func (c *Conn) Place() Place { return c.place }

// Done is closed when the connection is over; before that the queue pair is led to ERR, so that everything
// outstanding is flushed. It is not closed when the peer's machine is gone: then work requests fail.
func (c *Conn) Done() <-chan struct{} { return c.identifier.done }

// Err is nil while the connection stands. Then it says why it is over: ErrDisconnected, ErrDeviceGone or ErrClosed. It
// says so before anything is flushed.
func (c *Conn) Err() error { return c.identifier.why() }

// farewell is how long Close waits for the peer to have heard.
const farewell = time.Second

// Close ends the connection: the queue pair goes to ERR, so that what is outstanding is flushed, and the peer is
// told. It waits at most a second for the peer's answer.
func (c *Conn) Close() error {
	i := c.identifier
	select {
	case <-i.done:
	default:
		i.note(ErrClosed)
		i.leave()
		timer := time.NewTimer(farewell)
		defer timer.Stop()
		select {
		case <-i.done:
		case <-timer.C:
		}
	}
	return i.close()
}
