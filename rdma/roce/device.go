package roce

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// Device is a network interface that speaks RoCE v2.
type Device struct {
	resource
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
	return d.end(d.closeAll)
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
