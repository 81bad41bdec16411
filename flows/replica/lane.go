package replica

import (
	"errors"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/msg"
)

// lane is the part of Links at the device of one path: its links share a port, queues and receives. A receive that
// was posted stays with the device, also when the link that needed it has ended.
type lane struct {
	number   int // of the path, from 0
	endpoint *stream.Endpoint
	port     *msg.Port
	batcher  rdma.Batcher // the device if it implements it; otherwise nil
	shared   rdma.SharedReceiveQueue
	queues   [2]rdma.CompletionQueue // of sends, of receives
	links    int
	posted   int // receives
}

// open makes the port and its queues. close ends what it has made.
func (p *lane) open(c *Config) (err error) {
	d := p.endpoint.Device
	p.batcher, _ = d.(rdma.Batcher)
	m := msg.Config{Name: "links of " + c.Name, Worker: c.Worker, Memory: p.endpoint.Memory, Landing: c.Landing, Events: c.Events}
	if p.number > 0 {
		m.Name += " at " + d.Name()
	}
	receives := c.Window + c.Links*controls
	if m.Shared, err = p.endpoint.Domain.NewSharedReceiveQueue(rdma.SharedReceiveQueueConfig{Depth: receives, SGEs: 1}); err != nil {
		return err
	}
	p.shared = m.Shared
	if m.SendCQ, err = d.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: c.Links * sendDepth, Events: c.Events}); err != nil {
		return errors.Join(err, m.Shared.Close())
	}
	if m.ReceiveCQ, err = d.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: receives, Events: c.Events}); err != nil {
		return errors.Join(err, m.SendCQ.Close(), m.Shared.Close())
	}
	p.queues = [2]rdma.CompletionQueue{m.SendCQ, m.ReceiveCQ}
	p.port, err = msg.Open(m) // closes the queues if it fails
	return err
}

// kick posts what is queued, to all followers together.
func (p *lane) kick() error {
	if p.batcher != nil {
		p.batcher.Begin()
		defer p.batcher.End()
	}
	return p.port.Kick()
}

// close destroys the queue pairs. After an error it may be called again.
func (p *lane) close() error {
	if p.port == nil {
		return nil
	}
	return p.port.Close() // returns nil when it has succeeded before
}
