package device

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// RDMADevices are the RDMA devices of a daemon. Each device is open once, with the region
// registered, while any flow uses it. Any goroutine may call the methods.
type RDMADevices struct {
	region *umem.Region
	mu     sync.Mutex
	names  []string // devices that flows may use or that are open
	byName map[string]*RDMA
	least  map[string]int // min_rate of flows, by device: the highest
}

// RDMA is an open RDMA device with its endpoint.
type RDMA struct {
	*stream.Endpoint
	Name     string
	Software bool       // software RoCE, which copies payloads into place
	frames   int64      // region frames that the device takes
	users    int        // guarded by RDMADevices.mu
	mu       sync.Mutex // guards fatal and NextEvent
	fatal    bool       // the device has failed permanently
}

// NewRDMADevices returns the devices of a configuration. It opens none.
func NewRDMADevices(c *config.Config, region *umem.Region) *RDMADevices {
	d := &RDMADevices{region: region, byName: map[string]*RDMA{}}
	d.Expect(c)
	return d
}

// Expect sets the devices that flows may use: those of a configuration and those that are open.
func (d *RDMADevices) Expect(c *config.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names, d.least = slices.Sorted(maps.Keys(d.byName)), map[string]int{}
	for _, f := range c.Flows {
		d.least[f.From.RDMA] = max(d.least[f.From.RDMA], f.From.Class.MinRate)
		d.least[f.To.RDMA] = max(d.least[f.To.RDMA], f.To.Class.MinRate)
	}
	for _, s := range c.Attach.States {
		if name := s.Remote.RDMA; name != "" && !slices.Contains(d.names, name) {
			d.names = append(d.names, name)
		}
	}
	for _, f := range c.Flows {
		for _, name := range f.Devices() {
			if !slices.Contains(d.names, name) {
				d.names = append(d.names, name)
			}
		}
	}
}

// Open opens a device, or adds a user to an open one. The caller must call Release.
func (d *RDMADevices) Open(name string) (*RDMA, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byName[name]
	if one == nil {
		var err error
		if one, err = d.openOne(name); err != nil {
			return nil, err
		}
		d.byName[name] = one
	}
	one.users++
	return one, nil
}

// Release removes a user, and closes a device without users. If closing fails, the device stays
// open until the next Release.
func (d *RDMADevices) Release(one *RDMA) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one.users--; one.users > 0 {
		return nil
	}
	if err := one.close(); err != nil {
		return fmt.Errorf("close RDMA device %s: %w", one.Name, err)
	}
	delete(d.byName, one.Name)
	return nil
}

func (d *RDMADevices) openOne(name string) (*RDMA, error) {
	device, err := providers.Open(name, roce.Config{
		Region: d.region, Receive: d.receiveDepth(name), Rate: transport.RateControl{Least: uint64(d.least[name]) * 1e6},
	})
	if err != nil {
		return nil, err
	}
	one := &RDMA{Name: name}
	_, one.Software = providers.Soft(name)
	one.frames = d.framesOf(name)
	if one.Endpoint, err = stream.OpenEndpoint(device, d.region); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return one, nil
}

// Add adds a device that the caller opened, with one user. Release removes that user.
func (d *RDMADevices) Add(name string, e *stream.Endpoint) *RDMA {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := &RDMA{Endpoint: e, Name: name, frames: d.framesOf(name), users: 1}
	_, one.Software = providers.Soft(name)
	d.byName[name] = one
	return one
}

// Lookup returns an open device, or nil.
func (d *RDMADevices) Lookup(name string) *RDMA {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byName[name]
}

// In returns the endpoint for queue pairs of a class.
func (o *RDMA) In(c config.Class) *stream.Endpoint {
	class := stream.Class{TrafficClass: uint8(c.TrafficClass), Priority: uint8(c.Priority)}
	if c.ECN && class.TrafficClass&wire.CE == wire.NotECT {
		class.TrafficClass |= wire.ECT0
	}
	return o.WithClass(class)
}

func (o *RDMA) close() error {
	if err := o.Endpoint.Close(); err != nil {
		return err
	}
	return o.Device.Close()
}

// Receive frames of software RoCE devices.
const (
	// maxReceive and minReceive bound the number of receive frames that a software RoCE device keeps
	// for each queue of its interface.
	maxReceive = 2048
	minReceive = 256
)

// receiveDepth returns the number of receive frames for each queue of a software RoCE device. All
// devices together take at most a quarter of the region.
func (d *RDMADevices) receiveDepth(name string) int {
	n, _ := ReceiveDepth(name, d.Frames()/4/int64(len(d.names)))
	return n
}

// ReceiveDepth returns how many frames a software RoCE device keeps for each queue of its interface if it takes no more
// than most frames in all, and how many it takes. Both are 0 for other devices.
func ReceiveDepth(name string, most int64) (depth int, frames int64) {
	if _, soft := providers.Soft(name); !soft {
		return 0, 0
	}
	queues := queuesOf(name)
	for depth = maxReceive; depth > minReceive && (roce.Config{Receive: depth}).Frames(queues) > most; depth /= 2 {
	}
	return depth, roce.Config{Receive: depth}.Frames(queues)
}

// Frames returns the number of frames of the region outside its extents.
func (d *RDMADevices) Frames() int64 {
	return d.region.Frames() - int64(d.region.Extents()*d.region.ExtentSize()/uint64(d.region.FrameSize()))
}

// FramesTaken returns the number of frames that the devices take. For a device that is not open it
// is an estimate.
func (d *RDMADevices) FramesTaken() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.names {
		if one := d.byName[name]; one != nil {
			n += one.frames
		} else {
			n += d.framesOf(name)
		}
	}
	return n
}

// framesOf returns the number of frames that one device takes.
func (d *RDMADevices) framesOf(name string) int64 {
	_, n := ReceiveDepth(name, d.Frames()/4/int64(len(d.names)))
	return n
}

// queuesOf returns the number of receive queues that the interface of a device may have; 1 if there
// is no such interface.
func queuesOf(name string) int {
	iface, _ := providers.Soft(name)
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return 1
	}
	return max(1, link.Attrs().NumRxQueues)
}

// errGone says that an RDMA device has failed permanently.
var errGone = errors.New("the device is gone (the flow can start again when it is back)")

// CheckAny is Check for the devices of several paths. One of them may be without a link: peers then come over the others.
// A device that has failed permanently ends the flow, as the only one would.
func CheckAny(all []*RDMA) (waits, ends error) {
	well := false
	for _, d := range all {
		w, ends := d.Check()
		if ends != nil {
			return nil, ends
		}
		well = well || w == nil
		waits = cmp.Or(waits, w)
	}
	if well {
		return nil, nil
	}
	return waits, nil
}

// Check returns the condition of the device for which flows wait, or the error that ends them.
func (o *RDMA) Check() (waits, ends error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		e, more, err := o.Device.NextEvent()
		if err != nil {
			return nil, fmt.Errorf("RDMA device %s: %w", o.Name, err)
		}
		if !more {
			break
		}
		o.fatal = o.fatal || e.Kind == rdma.DeviceFatal
	}
	if o.fatal {
		return nil, fmt.Errorf("RDMA device %s: %w", o.Name, errGone)
	}
	port, err := o.Device.Port(o.Port)
	switch {
	case err != nil:
		return nil, fmt.Errorf("RDMA device %s: %w", o.Name, err)
	case !port.Active:
		return fmt.Errorf("RDMA device %s: port %d is %s (bring the link up)", o.Name, o.Port, port.State), nil
	}
	return nil, nil
}

// Status lists the open devices by name.
func (d *RDMADevices) Status() (all []status.RDMADevice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(d.byName)) {
		one := d.byName[name]
		s := status.RDMADevice{Name: name, Flows: one.users, QueuePairs: one.Device.QueuePairs()}
		if soft, is := one.Device.(*roce.Device); is {
			CountCopies(&s, soft.Counters())
		}
		all = append(all, s)
	}
	return all
}

// Addresses returns the GIDs of RoCE v2 that the open devices have: those addresses at which others reach them. A
// device that cannot tell has none.
func (d *RDMADevices) Addresses() map[string][]netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string][]netip.Addr{}
	for name, one := range d.byName {
		all[name] = nil
		table, _ := one.Device.GIDs(one.Port) // a device that fails has none
		for _, g := range table {
			if a := g.GID.Addr().Unmap(); g.Type == rdma.RoCE2 && !slices.Contains(all[name], a) {
				all[name] = append(all[name], a)
			}
		}
	}
	return all
}

// CountCopies adds the bytes that software RoCE copied.
func CountCopies(s *status.RDMADevice, counters []roce.Counter) {
	s.SentCopied = map[string]uint64{}
	for _, c := range counters {
		if reason, is := strings.CutPrefix(c.Name, "sent_copied_bytes_"); is {
			s.SentCopied[reason] = c.Value
		} else if c.Name == "copied_bytes" {
			s.Placed = c.Value
		}
	}
}
