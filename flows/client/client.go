package client

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/umem"
)

// Client is a region registered with one RDMA device, and the thread that polls everything opened
// with the client.
type Client struct {
	config   Config
	region   *umem.Region
	device   rdma.Device
	endpoint *stream.Endpoint
	further  map[string]*stream.Endpoint // of Config.Further
	book     *umem.Book
	hands    *umem.Holder
	loop     *loop
	undo     []func() error
}

// Open opens the device and registers a region with it. RoCE in software receives the RoCE packets
// of the interface in the network namespace of the calling thread. The caller closes the client.
func Open(c Config) (*Client, error) {
	k := &Client{config: c}
	if err := k.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open RDMA device %s: %w", c.Device, k.explainRights(err)), k.Close())
	}
	return k, nil
}

func (k *Client) open() (err error) {
	c := k.config.region()
	if k.config.Reserve {
		if c.Memory, err = umem.Allocate(c); err != nil {
			return err
		}
		k.then(c.Memory.GiveBack)
	}
	if k.region, err = umem.Open(c); err != nil {
		return err
	}
	k.then(k.region.Close)
	k.region.Warn(k.config.log())
	if k.device, err = providers.Open(k.config.Device, k.config.roce(k.region)); err != nil {
		return err
	}
	k.then(k.device.Close)
	if k.endpoint, err = stream.OpenEndpoint(k.device, k.region); err != nil {
		return err
	}
	k.then(k.endpoint.Close)
	k.endpoint = k.endpoint.WithClass(k.config.Class)
	if err := k.openFurther(); err != nil {
		return err
	}
	k.book = k.region.NewBook("client")
	k.then(k.book.Close)
	if k.hands, err = k.book.NewHolder(umem.OwnerWorker, "client"); err != nil {
		return err
	}
	k.then(func() error { k.hands.Close(); return nil })
	if k.loop, err = newLoop(k.device, k.config.Spin); err != nil {
		return err
	}
	k.then(k.loop.close)
	return nil
}

// openFurther opens the further devices.
func (k *Client) openFurther() error {
	k.further = map[string]*stream.Endpoint{}
	for _, name := range k.config.Further {
		device, err := providers.Open(name, k.config.roce(k.region))
		if err != nil {
			return fmt.Errorf("further device %s: %w", name, err)
		}
		k.then(device.Close)
		e, err := stream.OpenEndpoint(device, k.region)
		if err != nil {
			return err
		}
		k.then(e.Close)
		k.further[name] = e.WithClass(k.config.Class)
	}
	return nil
}

// then adds a step to Close.
func (k *Client) then(f func() error) { k.undo = append(k.undo, f) }

// Close gives everything back. Everything opened with the client must be closed before. A second
// Close does nothing.
func (k *Client) Close() error {
	var errs []error
	for len(k.undo) > 0 {
		last := len(k.undo) - 1
		errs = append(errs, k.undo[last]())
		k.undo = k.undo[:last]
	}
	return errors.Join(errs...)
}

// take takes frames of the region, or extents if messages do not fit in a frame.
func (k *Client) take(n int, bytes uint64) (frames []umem.Frame, err error) {
	frames = make([]umem.Frame, n)
	err = k.loop.do(func() error {
		take, what := k.hands.Take, "frames: make Config.Memory larger"
		if bytes > frameSize {
			take, what = k.hands.TakeExtents, "extents: make Config.Extents larger"
		}
		if got := take(frames); got < n {
			k.hands.Give(frames[:got])
			return fmt.Errorf("the region has %d of the %d free %s", got, n, what)
		}
		return nil
	})
	return frames, err
}

// give gives frames back.
func (k *Client) give(frames []umem.Frame) error {
	return k.loop.do(func() error { k.hands.Give(frames); return nil })
}
