package roce

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// Device is a network interface that speaks RoCE v2.
type Device struct {
	life         lifetime.Object
	title        string
	config       Config
	net          *network.Interface
	iface        *xdp.Interface
	book         *umem.Book
	events       events
	progressLoop progressLoop
	groups       groups // under lock

	management management

	ports    []*xdp.Port
	lock     sync.Mutex // of datapath, waiting and domains; held for a moment only
	datapath datapath
	waiting  map[*transport.CompletionQueue]*completionQueue // those with events
	pairs    map[*transport.QueuePair]bool                   // those open
	domains  uint32                                          // how many there ever were
	missed   atomic.Bool                                     // somebody found the lock taken: who has it goes round once more
	owes     atomic.Bool                                     // machine.owes, for those without the lock
	batches  atomic.Int32                                    // Begins without their End
	batched  atomic.Bool                                     // something was posted that waits for one
	looks    atomic.Uint32                                   // calls of Progress in a row that found nothing to do

	turns    atomic.Uint64 // changes while programs drive; written under lock
	eventful atomic.Int32  // how many are in waiting
	relieves atomic.Bool   // relieve found the lock taken
}

// String names the device in errors.
func (d *Device) String() string { return d.life.String() }

var (
	_ rdma.Device     = (*Device)(nil)
	_ rdma.Progresser = (*Device)(nil)
)

// Name is the interface's name when it was opened.
func (d *Device) Name() string { return d.title }

// Granted says how the kernel moves packets: with or without copies, in one piece or gathered.
func (d *Device) Granted() xdp.Granted { return d.iface.Granted() }

// softVendor is what Soft-RoCE gives as its vendor: there is no number for software of anybody's.
const softVendor = 0xffffff

// Capabilities are the limits.
func (d *Device) Capabilities() rdma.Capabilities {
	mac := d.net.MAC()
	guid := uint64(mac[0]^2)<<56 | uint64(mac[1])<<48 | uint64(mac[2])<<40 | 0xfffe<<24 | uint64(mac[3])<<16 | uint64(mac[4])<<8 | uint64(mac[5])
	return rdma.Capabilities{
		NodeGUID: guid, VendorID: softVendor, Ports: 1,
		MaxQueuePairs: d.config.QueuePairs, MaxWorkRequests: transport.MaxDepth, MaxSGEs: transport.MaxPieces, MaxSGEsRead: transport.MaxPieces,
		MaxCompletionQueues: 1 << 16, MaxCompletions: transport.MaxCompletions,
		MaxMemoryRegions: d.config.Keys, MaxMemoryRegion: d.config.Region.Size(),
		MaxReads: transport.MaxReads, MaxRemoteReads: transport.MaxReads,
		MaxSharedQueues: 1 << 16, MaxSharedRequests: transport.MaxDepth, MaxSharedSGEs: transport.MaxPieces,
		MaxMemoryWindows: d.config.Keys, Atomics: true, WindowsType2: true, LocalAcknowledgement: 15,
	}
}

// Port is the state of port 1.
func (d *Device) Port(number uint8) (rdma.Port, error) {
	if err := d.hasPort(number); err != nil {
		return rdma.Port{}, err
	}
	p := rdma.Port{Number: 1, Active: d.net.Up(), State: "DOWN", LinkLayer: rdma.LinkEthernet, MaxMTU: rdma.MTU4096, ActiveMTU: d.mtu(),
		MaxMessage: transport.MaxMessage, GIDs: network.MaxGIDs, PKeys: 1, Width: 1, Speed: 1}
	if p.Active {
		p.State = "ACTIVE"
	}
	return p, nil
}

func (d *Device) hasPort(number uint8) error {
	if number != 1 {
		return fmt.Errorf("%v has no port %d: it has one, number 1", d, number)
	}
	return nil
}

// mtu is the largest that fits the interface and the sockets: it may be less than when the device was opened, and not more.
func (d *Device) mtu() rdma.MTU { return min(rdma.FitsInterface(d.net.MTU()), d.progressLoop.mtu) }

// GIDs are the interface's addresses and those of VLANs on it. A place stays the address's until that goes.
func (d *Device) GIDs(port uint8) ([]rdma.GIDEntry, error) {
	if err := d.hasPort(port); err != nil {
		return nil, err
	}
	return d.net.GIDs(), nil
}

// EventFD polls readable when NextEvent has something.
func (d *Device) EventFD() int { return d.events.signal.fd }

// NextEvent takes an event. What a program does not take beyond some thousands is lost.
func (d *Device) NextEvent() (rdma.Event, bool, error) {
	e, ok := d.events.next()
	return e, ok, nil
}

// Close gives everything back: frames, those on loan too, sockets and the XDP program. It is refused while something made from the
// device is open.
func (d *Device) Close() error {
	return d.life.Close(d.closeAll)
}

func (d *Device) closeAll() error {
	d.delist()
	d.progressLoop.stop()
	d.lock.Lock()
	defer d.lock.Unlock()
	var errs []error
	if d.iface != nil {
		errs = append(errs, d.iface.Close())
	}
	if d.net != nil {
		errs = append(errs, d.net.Close())
	}
	errs = append(errs, d.closeBook(), d.events.signal.close(), d.progressLoop.close(), d.groups.close())
	return errors.Join(errs...)
}

// closeBook gives all frames to the pool.
func (d *Device) closeBook() error {
	m := &d.datapath
	for _, h := range []*umem.Holder{m.hands, m.lent} {
		if h != nil {
			h.Close()
		}
	}
	if d.book == nil {
		return nil
	}
	return d.book.Close()
}

// opened are the devices that this process has open.
var opened struct {
	mu      sync.Mutex
	devices []*Device
}

// Opened lists the devices that this process has open, in the order in which they were opened: for counters, which may be
// read of each also when it is closed meanwhile. It may be called from any goroutine.
func Opened() []*Device {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	return slices.Clone(opened.devices)
}

// enlist has Opened list the device.
func (d *Device) enlist() {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	opened.devices = append(opened.devices, d)
}

// delist is the contrary, and does nothing of a device that is not listed.
func (d *Device) delist() {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	opened.devices = slices.DeleteFunc(opened.devices, func(o *Device) bool { return o == d })
}

// Counter is something that a device counts, since it was opened.
type Counter struct {
	Name  string // fit for a metric
	Value uint64
}

// counter is what is counted here; the engine and the sockets count for themselves.
type counter uint8

const (
	_             counter = iota
	copiedShort           // bytes that were copied to be sent: fewer than Config.CopyBelow
	copiedInline          // those posted inline
	copiedAgain           // sent again: their memory may be used for something else meanwhile
	copiedParts           // in more parts than the card takes at once, or than there is room for
	copiedWhole           // of sockets that send only packets in one part
	copiedOwn             // to an address of our own
	notOurs               // packets to an address that is not ours
	otherVLAN             // packets to an address of ours, on another VLAN than that
	refused               // frames that could not be sent
	kickErrors            // calls that the kernel did not answer well, as of an interface that is down
	waysLost              // times that a peer was no longer reached
	tooLong               // packets of more frames than any interface's MTU has
	unsent                // packets to our own address for which there was no frame
	counterNumber         // how many there are
)

var counterNames = [counterNumber]string{copiedShort: "sent_copied_bytes_short", copiedInline: "sent_copied_bytes_inline",
	copiedAgain: "sent_copied_bytes_again", copiedParts: "sent_copied_bytes_parts", copiedWhole: "sent_copied_bytes_whole", copiedOwn: "sent_copied_bytes_own",
	notOurs: "dropped_not_ours", otherVLAN: "dropped_other_vlan", refused: "send_refused", kickErrors: "send_errors", waysLost: "ways_lost", tooLong: "dropped_too_many_frames",
	unsent: "dropped_no_frame"}

// counts are written by who drives the datapath, and read under its lock.
type counts struct {
	own       [counterNumber]uint64
	malformed [wire.Reasons]uint64
}

func (c *counts) add(what counter, n uint64) { c.own[what] += n }

// Counters are what was counted since the device was opened: packets, retries and all else that the protocol counts (transport.Counter);
// packets dropped, by reason (transport.Drop and wire.Malformed); bytes that were copied. They keep their order. It may
// be called from any goroutine, also once the device is closed.
func (d *Device) Counters() []Counter {
	return append(d.ownCounters(), d.management.counters()...)
}

func (d *Device) ownCounters() (list []Counter) {
	d.lock.Lock()
	defer d.unlock()
	m := &d.datapath
	for c := range transport.Counters {
		list = append(list, Counter{c.String(), m.engine.Count(c)})
	}
	for r := range transport.Drops {
		list = append(list, Counter{"dropped_" + r.String(), m.engine.Dropped(r)})
	}
	for why := wire.WellFormed + 1; why < wire.Reasons; why++ {
		list = append(list, Counter{"malformed_" + why.String(), m.counts.malformed[why]})
	}
	for c := counter(1); c < counterNumber; c++ {
		list = append(list, Counter{counterNames[c], m.counts.own[c]})
	}
	return list
}

// management is what the device's connection manager counts: that which is open, and those that were.
type management struct {
	mu     sync.Mutex
	read   func() []Counter
	before []Counter
}

// Manage is for a connection manager: the counters are among Counters from then on. They keep their order; nil ends it.
func (d *Device) Manage(read func() []Counter) {
	m := &d.management
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before, m.read = m.sum(), read
}

// sum is what all have counted. The caller has the lock.
func (m *management) sum() []Counter {
	if m.read == nil {
		return m.before
	}
	all := m.read()
	for i := range m.before {
		all[i].Value += m.before[i].Value
	}
	return all
}

func (m *management) counters() []Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum()
}

// Region is the memory that the device uses.
func (d *Device) Region() *umem.Region { return d.config.Region }

// NewManagementQueuePair makes queue pair 1, of datagrams, which connection managers speak with. There is one at a time.
func (d *Device) NewManagementQueuePair(p rdma.ProtectionDomain, c rdma.QueuePairConfig) (rdma.QueuePair, error) {
	dom, ok := p.(*domain)
	if !ok || dom.dev != d || c.Transport != rdma.UD {
		return nil, fmt.Errorf("make queue pair 1 of %v: it is for datagrams, and its protection domain one of this device", d)
	}
	return dom.newQueuePair(c, 1)
}
