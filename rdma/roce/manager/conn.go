package manager

import (
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/rdma/cm"
)

// conn is a connection that its program has.
type conn struct {
	manager *Manager
	c       *connection
	once    sync.Once
}

func (c *conn) Private() []byte           { return c.c.peerState.private }
func (c *conn) Address() cm.DeviceAddress { return c.c.place }
func (c *conn) Done() <-chan struct{}     { return c.c.done }
func (c *conn) Err() error                { return c.manager.why(c.c) }

// Close waits at most a second for the peer's answer. What it did not hear is said again while the manager is open.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.manager.end(c.c)
		<-c.c.done
		limit := time.NewTimer(farewell)
		defer limit.Stop()
		select {
		case <-c.c.settled:
		case <-c.manager.ended:
		case <-limit.C:
		}
	})
	return nil
}
