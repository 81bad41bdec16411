package blocks

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/ep"
	"github.com/unifiedd/unifiedd/rdma/mr"
	"github.com/unifiedd/unifiedd/umem"
)

// Dial connects to a server. ctx limits the time for connecting.
func Dial(ctx context.Context, config ClientConfig) (*Client, error) {
	c := &Client{config: config}
	if err := c.dial(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("ask for blocks at %s: %w", config.Address, err), c.Close())
	}
	return c, nil
}

func (c *Client) dial(ctx context.Context) error {
	if err := c.config.setDefaults(); err != nil {
		return err
	}
	if err := c.openMemory(); err != nil {
		return err
	}
	settings, err := c.config.Endpoint.SettingsTo(ctx, c.config.Address)
	if err != nil {
		return err
	}
	settings.Access, settings.RNRRetries = rdma.RemoteWrite, rnrRetries
	if err := c.openQueues(); err != nil {
		return err
	}
	end, err := c.prepare(settings)
	if err != nil {
		return err
	}
	if c.conn, err = connect.Dial(ctx, c.config.Address, end, c.config.Connect); err != nil {
		return err
	}
	c.watcher.Go(c.watch)
	return c.agree()
}

// places is the number of slots per request of the window. An answer may arrive before the
// completion of the request's SEND, and the next request is sent then.
const places = 2

// openMemory takes control buffers and grants.
func (c *Client) openMemory() (err error) {
	c.region = c.config.Endpoint.Region
	book, window := c.config.Worker.Book(), c.config.Window
	if c.holder, err = book.NewHolder(umem.OwnerRDMA, "block client "+c.config.Name); err != nil {
		return err
	}
	if c.granted, err = book.NewHolder(umem.OwnerGranted, "granted by block client "+c.config.Name); err != nil {
		return err
	}
	if c.cells, err = ep.NewControlBuffers(c.holder, c.config.Endpoint.Memory, window+places*window, protocol.HeaderLen); err != nil {
		return err
	}
	c.slots, c.done = make([]slot, places*window), make([]Done, 2*window)
	c.list = ep.NewPostList(window, window, window, window)
	for n := len(c.slots) - 1; n >= 0; n-- {
		c.free = append(c.free, int32(n))
	}
	return nil
}

func (c *Client) openQueues() (err error) {
	device, window := c.config.Endpoint.Device, c.config.Window
	sends := places*window + grantRequests
	if c.sent.Queue, err = device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: sends}); err != nil {
		return err
	}
	if c.came.Queue, err = device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: window}); err != nil {
		return err
	}
	memory := c.config.Endpoint.Memory
	if c.qp, err = c.config.Endpoint.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: c.sent.Queue, ReceiveCQ: c.came.Queue,
		SendDepth: sends, RecvDepth: window, SendSGEs: 1, RecvSGEs: 1}); err != nil {
		return err
	}
	c.grants, err = mr.New(mr.Config{QueuePair: c.qp, Domain: c.config.Endpoint.Domain, Region: c.region, Memory: memory,
		Most: c.config.Grants, Requests: grantRequests, Register: memory.Access()&rdma.BindWindows == 0})
	return err
}

// prepare brings the queue pair to INIT, and posts receives for all possible answers.
func (c *Client) prepare(settings connect.Settings) (e connect.End, err error) {
	e = connect.End{Queue: c.qp, Settings: settings}
	if e.Parameters, err = connect.Prepare(c.config.Endpoint.Device, c.qp, settings); err != nil {
		return e, err
	}
	for n := range c.config.Window {
		c.receive(n)
	}
	if err := c.post(); err != nil {
		return e, err
	}
	h := protocol.Hello{Role: protocol.RoleBlocks, Flow: c.config.Flow}
	e.Hello, err = h.Append(nil)
	return e, err
}

// agree processes the server's hello.
func (c *Client) agree() (err error) {
	if c.hello, err = protocol.ParseHello(c.conn.Remote().Hello); err != nil {
		return err
	}
	h := &c.hello
	if h.Role != protocol.RoleBlocks || h.Window == 0 || h.Message == 0 || h.Align == 0 {
		return fmt.Errorf("%w: the server's hello is not that of one that serves blocks", protocol.BadKind)
	}
	c.window = int(min(uint64(h.Window), uint64(c.config.Window)))
	return nil
}

// watch waits for the end of the connection, and records the cause: the server's final message, or
// the error.
func (c *Client) watch() {
	var said error
	for {
		text, err := c.conn.Receive()
		switch {
		case err == nil:
			said = fmt.Errorf("the server ends it: %q", text)
			continue
		case said != nil:
			err = said
		case errors.Is(err, io.EOF):
			err = errors.New("the server closed the connection")
		}
		c.gone.Store(&err)
		return
	}
}
