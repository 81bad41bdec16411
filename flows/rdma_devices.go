package flows

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// rdmaDevices are the RDMA devices of a daemon. Each is open once, with the region
// registered, for as long as a flow uses it. Any goroutine may use them.
type rdmaDevices struct {
	region *umem.Region
	mu     sync.Mutex
	names  []string // that flows may use, or that are open
	open   map[string]*rdmaDevice
}

// rdmaDevice is one of them.
type rdmaDevice struct {
	*stream.Endpoint
	name  string
	soft  bool       // RoCE in software, which places what comes by a copy
	takes int64      // frames, as far as that is known before it is open
	users int        // under the devices' lock
	mu    sync.Mutex // of who asks for events
	fatal bool       // the device is gone
}

// newRDMADevices opens none yet.
func newRDMADevices(c *config.Config, region *umem.Region) *rdmaDevices {
	d := &rdmaDevices{region: region, open: map[string]*rdmaDevice{}}
	d.expect(c)
	return d
}

// expect makes the devices of a configuration, and those that are open still, those that
// flows may use.
func (d *rdmaDevices) expect(c *config.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = slices.Sorted(maps.Keys(d.open))
	for _, f := range c.Flows {
		for _, name := range []string{f.From.RDMA, f.To.RDMA} {
			if name != "" && !slices.Contains(d.names, name) {
				d.names = append(d.names, name)
			}
		}
	}
}

// use opens a device, unless it is open. Who uses it gives it back.
func (d *rdmaDevices) use(name string) (*rdmaDevice, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.open[name]
	if one == nil {
		var err error
		if one, err = d.openOne(name); err != nil {
			return nil, err
		}
		d.open[name] = one
	}
	one.users++
	return one, nil
}

// giveBack closes a device that nobody uses any more. One that cannot be closed stays
// open, and is closed when it was used again.
func (d *rdmaDevices) giveBack(one *rdmaDevice) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one.users--; one.users > 0 {
		return nil
	}
	if err := one.close(); err != nil {
		return fmt.Errorf("close RDMA device %s: %w", one.name, err)
	}
	delete(d.open, one.name)
	return nil
}

func (d *rdmaDevices) openOne(name string) (*rdmaDevice, error) {
	device, err := providers.Open(name, roce.Config{Region: d.region, Receive: d.receive(name)})
	if err != nil {
		return nil, err
	}
	one := &rdmaDevice{name: name}
	_, one.soft = providers.Soft(name)
	one.takes = d.takes(name)
	if one.Endpoint, err = stream.OpenEndpoint(device, d.region); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return one, nil
}

func (o *rdmaDevice) close() error {
	if err := o.Endpoint.Close(); err != nil {
		return err
	}
	return o.Device.Close()
}

// Frames that a device with RoCE in software keeps for each queue of its interface to
// receive in: at most and at least.
const (
	mostReceive  = 2048
	leastReceive = 256
)

// receive is how many frames each queue of a device with RoCE in software has, so that
// all devices together take a quarter of the region, or less.
func (d *rdmaDevices) receive(name string) int {
	share := d.frames() / 4 / int64(len(d.names))
	n := mostReceive
	for n > leastReceive && (roce.Config{Receive: n}).Frames(queuesOf(name)) > share {
		n /= 2
	}
	return n
}

// frames are those of the region that are no extents.
func (d *rdmaDevices) frames() int64 {
	return d.region.Frames() - int64(d.region.Extents()*d.region.ExtentSize()/uint64(d.region.FrameSize()))
}

// taken is how many frames the devices take, as far as that is known before they are open.
func (d *rdmaDevices) taken() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.names {
		if one := d.open[name]; one != nil {
			n += one.takes
		} else {
			n += d.takes(name)
		}
	}
	return n
}

// takes is how many of them one device takes.
func (d *rdmaDevices) takes(name string) int64 {
	if _, soft := providers.Soft(name); soft {
		return roce.Config{Receive: d.receive(name)}.Frames(queuesOf(name))
	}
	return 0
}

// queuesOf is how many receive queues the interface of a device may have; 1 of what is
// no interface, or none that is there.
func queuesOf(name string) int {
	iface, _ := providers.Soft(name)
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return 1
	}
	return max(1, link.Attrs().NumRxQueues)
}

// errDeviceGone says that an RDMA device does not come back.
var errDeviceGone = errors.New("the device is gone (start the flow again when it is back)")

// check says what the device makes flows wait for, and what ends them.
func (o *rdmaDevice) check() (waits, ends error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		e, more, err := o.Device.NextEvent()
		if err != nil {
			return nil, fmt.Errorf("RDMA device %s: %w", o.name, err)
		}
		if !more {
			break
		}
		o.fatal = o.fatal || e.Kind == rdma.DeviceFatal
	}
	if o.fatal {
		return nil, fmt.Errorf("RDMA device %s: %w", o.name, errDeviceGone)
	}
	port, err := o.Device.Port(o.Port)
	switch {
	case err != nil:
		return nil, fmt.Errorf("RDMA device %s: %w", o.name, err)
	case !port.Active:
		return fmt.Errorf("RDMA device %s: port %d is %s (bring the link up)", o.name, o.Port, port.State), nil
	}
	return nil, nil
}
