package cm

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// conn implements Conn.
type conn struct {
	identifier *identifier
	place      DeviceAddress
	private    []byte
}

// newConn passes a queue pair to the channel's goroutine, which puts it into ERR at the end of the
// connection. An iWARP device has already changed the queue pair's state; querying the state makes
// its driver notice.
func newConn(i *identifier, p DeviceAddress, q rdma.QueuePair, private []byte) (Conn, error) {
	if _, err := q.State(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	i.queue = q
	i.mu.Unlock()
	select {
	case <-i.done: // it ended before the goroutine could see the queue pair
		i.leave()
	default:
	}
	return &conn{identifier: i, place: p, private: private}, nil
}

func (i *identifier) isLed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.queue != nil
}

func (c *conn) Private() []byte { return c.private }

func (c *conn) Address() DeviceAddress { return c.place }

func (c *conn) Done() <-chan struct{} { return c.identifier.done }

func (c *conn) Err() error { return c.identifier.why() }

// disconnectTimeout is how long Close waits for the peer's answer.
const disconnectTimeout = time.Second

// Close waits at most a second for the peer's answer.
func (c *conn) Close() error {
	i := c.identifier
	select {
	case <-i.done:
	default:
		i.note(ErrClosed)
		i.leave()
		timer := time.NewTimer(disconnectTimeout)
		defer timer.Stop()
		select {
		case <-i.done:
		case <-timer.C:
		}
	}
	return i.close()
}
