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

	// management holds the counters of connection managers: those of the open one, and the sums of
	// the closed ones.
	management management

	ports      []*xdp.Port
	lock       sync.Mutex // of datapath, waiting, pairs and domains; never held while sleeping
	datapath   datapath
	waiting    map[*transport.CompletionQueue]*completionQueue // those with events
	pairs      map[*transport.QueuePair]bool                   // the open ones
	domains    uint32                                          // protection domains made so far
	contended  atomic.Bool                                     // a thread found the lock taken: its holder does that thread's work
	txPending  atomic.Bool                                     // datapath.txPending, for threads without the lock
	batches    atomic.Int32                                    // calls of Begin without their End
	heldBack   atomic.Bool                                     // a posted request waits for an End
	emptyPolls atomic.Uint32                                   // calls of Progress in a row that found nothing to do

	drives   atomic.Uint64 // counts the times that programs drove the device; written under lock
	eventful atomic.Int32  // the length of waiting
	// ackFlushRequested: a thread wanted to flush coalesced ACKs while another held the lock; the holder flushes them.
	ackFlushRequested atomic.Bool
}

// String names the device in errors.
func (d *Device) String() string { return d.life.String() }

var (
	_ rdma.Device     = (*Device)(nil)
	_ rdma.Progresser = (*Device)(nil)
)

// Name returns the interface's name when it was opened.
func (d *Device) Name() string { return d.title }

// Granted says how the kernel moves packets: with or without copies, in one part or several.
func (d *Device) Granted() xdp.Granted { return d.iface.Granted() }

// softVendor is the vendor that Soft-RoCE reports. Software has no vendor number.
const softVendor = 0xffffff

// Capabilities returns the limits.
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

// Port returns the state of port 1.
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

// mtu returns the largest MTU that fits the interface now, and not more than when the device was
// opened.
func (d *Device) mtu() rdma.MTU { return min(rdma.FitsInterface(d.net.MTU()), d.progressLoop.mtu) }

// GIDs returns the addresses of the interface and of its VLANs. An address keeps its index until it
// is removed.
func (d *Device) GIDs(port uint8) ([]rdma.GIDEntry, error) {
	if err := d.hasPort(port); err != nil {
		return nil, err
	}
	return d.net.GIDs(), nil
}

// EventFD returns a descriptor that polls readable when NextEvent has an event.
func (d *Device) EventFD() int { return d.events.signal.fd }

// NextEvent returns an event. Events beyond maxEvents that the program does not take are lost.
func (d *Device) NextEvent() (rdma.Event, bool, error) {
	e, ok := d.events.next()
	return e, ok, nil
}

// Close gives back all frames, also those on loan, the sockets and the XDP program. It fails while
// an object made from the device is open.
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

// closeBook gives all frames back to the region.
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

// opened lists the open devices of this process.
var opened struct {
	mu      sync.Mutex
	devices []*Device
}

// Opened returns the open devices of this process, in the order in which they were opened. Their
// counters can be read also after they are closed. It may be called from any goroutine.
func Opened() []*Device {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	return slices.Clone(opened.devices)
}

// enlist adds the device to opened.
func (d *Device) enlist() {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	opened.devices = append(opened.devices, d)
}

// delist removes the device from opened, if it is there.
func (d *Device) delist() {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	opened.devices = slices.DeleteFunc(opened.devices, func(o *Device) bool { return o == d })
}

// Counter is a counter of a device since it was opened.
type Counter struct {
	Name  string // usable in a metric's name
	Value uint64
}

// counter is an index of counts. The engine and the sockets have counters of their own.
type counter uint8

const (
	_             counter = iota
	copiedShort           // bytes copied for sending: fewer than Config.CopyBelow
	copiedInline          // bytes posted inline
	copiedAgain           // retransmitted: the program may use their memory for something else
	copiedShared          // answers to READs from memory that programs of the host map, and its owner writes
	copiedParts           // in more parts than the card takes, or than the ring has room for
	copiedWhole           // the socket sends only packets in one part
	copiedOwn             // to the device's own address
	notOurs               // packets to an address that is not ours
	otherVLAN             // packets to an address of ours, but on another VLAN
	refused               // frames that could not be sent
	kickErrors            // failed system calls to send, as on an interface that is down
	routesLost            // routes to peers that were lost
	tooLong               // packets longer than any interface's MTU
	unsent                // packets to our own address without a frame for them
	counterNumber         // the number of counters
)

var counterNames = [counterNumber]string{copiedShort: "sent_copied_bytes_short", copiedInline: "sent_copied_bytes_inline",
	copiedAgain: "sent_copied_bytes_again", copiedShared: "sent_copied_bytes_shared", copiedParts: "sent_copied_bytes_parts", copiedWhole: "sent_copied_bytes_whole", copiedOwn: "sent_copied_bytes_own",
	notOurs: "dropped_not_ours", otherVLAN: "dropped_other_vlan", refused: "send_refused", kickErrors: "send_errors", routesLost: "ways_lost", tooLong: "dropped_too_many_frames",
	unsent: "dropped_no_frame"}

// counts are written by the thread that drives the datapath, and read with its lock.
type counts struct {
	own       [counterNumber]uint64
	malformed [wire.Reasons]uint64
}

func (c *counts) add(what counter, n uint64) { c.own[what] += n }

// Counters returns what was counted since the device was opened: the protocol's counters
// (transport.Counter), packets dropped by reason (transport.Drop and wire.Malformed), and bytes
// copied. Their order does not change. It may be called from any goroutine, also after the device
// is closed.
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

// management holds the counters of the device's connection managers: those of the open one, and the
// sums of the closed ones.
type management struct {
	mu     sync.Mutex
	read   func() []Counter
	before []Counter
}

// Manage adds the counters of a connection manager to Counters, after the others. nil removes them
// and keeps their sums. They must come in the same order each time.
func (d *Device) Manage(read func() []Counter) {
	m := &d.management
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before, m.read = m.sum(), read
}

// sum returns the counters of all connection managers. The caller holds the lock.
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

// Region returns the memory that the device uses.
func (d *Device) Region() *umem.Region { return d.config.Region }

// NewManagementQueuePair makes queue pair 1, of type UD, through which connection managers exchange
// datagrams. A device has one at a time.
func (d *Device) NewManagementQueuePair(p rdma.ProtectionDomain, c rdma.QueuePairConfig) (rdma.QueuePair, error) {
	dom, ok := p.(*domain)
	if !ok || dom.dev != d || c.Transport != rdma.UD {
		return nil, fmt.Errorf("make queue pair 1 of %v: it is for datagrams, and its protection domain one of this device", d)
	}
	return dom.newQueuePair(c, 1)
}
