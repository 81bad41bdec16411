package network

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// Interface is a network interface with the VLANs on it.
type Interface struct {
	kernel  *kernel
	watch   *watch
	index   int
	rate    uint64        // bits per second, when it was opened; 0: the driver does not tell
	done    chan struct{} // closed by Close
	ended   chan struct{} // closed when the goroutine watch ends
	once    sync.Once     // of Close
	counter counters
	// order is held from a query about a tracked route until the answer is stored, and while the
	// kernel's messages about neighbours are stored. So an older answer never overwrites a newer
	// one. It is taken before mu.
	order sync.Mutex

	mu       sync.Mutex
	links    []link // the interface, and the VLANs on it
	table    table
	gone     bool
	tracked  map[*TrackedRoute]struct{}
	waiting  map[*waiter]struct{}
	reported reported
	event    event
}

// Open opens the interface in the network namespace of the calling thread. The caller closes it.
// The error is ErrInterfaceGone if there is no such interface, or ErrNotEthernet.
func Open(name string) (*Interface, error) {
	i, err := open(name, refreshEvery)
	if err != nil {
		return nil, fmt.Errorf("open network interface %.128s: %w", name, err)
	}
	return i, nil
}

// open is Open with another interval between two checks of the neighbours of tracked routes.
func open(name string, refresh time.Duration) (*Interface, error) {
	k, err := newKernel()
	if err != nil {
		return nil, err
	}
	i := &Interface{
		kernel: k, done: make(chan struct{}), ended: make(chan struct{}), event: noEvent,
		tracked: map[*TrackedRoute]struct{}{}, waiting: map[*waiter]struct{}{},
	}
	if err := i.start(name, refresh); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// start subscribes before it reads, so that no change is missed.
func (i *Interface) start(name string, refresh time.Duration) (err error) {
	defer func() {
		if err != nil {
			close(i.ended) // watch was not started
		}
	}()
	if i.event, err = newEvent(); err != nil {
		return err
	}
	if i.watch, err = newWatch(i, refresh); err != nil {
		return err
	}
	if err := i.find(name); err != nil {
		return err
	}
	i.rate = rateOf(i.index)
	i.reported.link, i.reported.table = i.links[0].public(), append(table(nil), i.table...)
	go i.watch.run()
	return nil
}

// find looks up the name and reads links and addresses.
func (i *Interface) find(name string) error {
	err := i.kernel.ask(func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return linkError(err)
		}
		i.index = l.Attrs().Index
		return netdev.Of(l).NeedEthernet("RoCE")
	})
	if err != nil {
		return err
	}
	return i.reread()
}

// reread reads links and addresses from the kernel again.
func (i *Interface) reread() error {
	links, err := i.kernel.links(i.index)
	if err != nil {
		return err
	}
	addresses, err := i.kernel.addresses(links)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.links = links
	i.table.update(addresses)
	return nil
}

// Close ends calls that wait and frees all resources. Tracked routes need not be dropped before.
// Closing again does nothing.
func (i *Interface) Close() (err error) {
	i.once.Do(func() {
		close(i.done)
		if i.watch != nil {
			i.watch.socket.Close()
		}
		<-i.ended
		i.kernel.close()
		i.mu.Lock()
		defer i.mu.Unlock()
		err = i.event.close()
	})
	return err
}

// unusable returns the error of an interface that is closed or gone. The caller holds the lock.
func (i *Interface) unusable() error {
	select {
	case <-i.done:
		return errClosed
	default:
	}
	if i.gone {
		return ErrInterfaceGone
	}
	return nil
}

// Link is the state of the interface.
type Link struct {
	Name string
	MAC  MAC // of the interface; a VLAN on it may have another
	MTU  int // the longest packet in bytes, without the Ethernet header
	Up   bool
}

func (l link) public() Link { return Link{l.name, l.mac, l.mtu, l.up} }

// Link returns the state of the interface. Up means that it is set up and has a carrier. If the
// interface is gone, Link returns its last state.
func (i *Interface) Link() Link {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.links[0].public()
}

// Index returns the interface's index in its namespace.
func (i *Interface) Index() int { return i.index }

// Name returns the interface's present name.
func (i *Interface) Name() string { return i.Link().Name }

// MAC returns Link's MAC.
func (i *Interface) MAC() MAC { return i.Link().MAC }

// MTU returns Link's MTU.
func (i *Interface) MTU() int { return i.Link().MTU }

// Up returns Link's Up.
func (i *Interface) Up() bool { return i.Link().Up }

// Veth reports whether the interface is one end of a veth pair.
func (i *Interface) Veth() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.links[0].veth
}

// GIDs returns the entries of the GID table that are in use, by index. The slice is the caller's.
func (i *Interface) GIDs() []rdma.GIDEntry {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.table.entries()
}

// Local is an address of the interface or of a VLAN on it.
type Local struct {
	GID  rdma.GID
	Tags [wire.MaxTags]wire.Tag // of packets on its VLAN, the outer one first
}

// Locals returns the addresses in the table of GIDs. The slice is the caller's.
func (i *Interface) Locals() (all []Local) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range i.table.entries() {
		all = append(all, Local{e.GID, i.link(e.Interface).tags})
	}
	return all
}

// placeName names an entry of the GID table in errors.
func (i *Interface) placeName(place int) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	name := i.links[0].name
	from, ok := i.table.at(place)
	if !ok {
		return fmt.Sprintf("%s, GID %d", name, place)
	}
	return fmt.Sprintf("%v on %s", from.gid, i.link(from.link).name)
}

// link returns the link with an index that the table refers to. The caller holds the lock.
func (i *Interface) link(index int) link {
	for _, l := range i.links {
		if l.index == index {
			return l
		}
	}
	return i.links[0]
}

// Counters count what happened since Open.
type Counters struct {
	Overruns uint64 // times that the socket's buffer was full and messages of the kernel were lost
	Rereads  uint64 // times that links and addresses were read again
	Looks    uint64 // checks of the neighbours of tracked routes
	Failures uint64 // failed queries to the kernel, which are repeated later; includes missing permission
}

// counters are incremented by watch and by Track.
type counters struct {
	overruns, rereads, looks, failures atomic.Uint64
}

// Counters may be called at any time, also after Close.
func (i *Interface) Counters() Counters {
	c := &i.counter
	return Counters{c.overruns.Load(), c.rereads.Load(), c.looks.Load(), c.failures.Load()}
}

func (c *counters) looked(err error) {
	c.looks.Add(1)
	c.failed(err)
}

func (c *counters) failed(err error) {
	if err != nil {
		c.failures.Add(1)
	}
}

// Errors to be matched with errors.Is.
var (
	// ErrInterfaceGone: the interface was deleted or moved to another network namespace, or never existed.
	ErrInterfaceGone = errors.New("interface is gone")
	// errInterfaceDown: the interface is set down or has no carrier.
	errInterfaceDown = errors.New("interface is down")
	// ErrNotEthernet: the interface is not an Ethernet interface.
	ErrNotEthernet = errors.New("not an Ethernet interface")
	// errSource: the entry of the GID table is empty, or its address family is not the peer's.
	errSource = errors.New("source address does not fit")
	// errNoRoute: the kernel has no route to the peer, or the route uses another interface.
	errNoRoute = errors.New("no route")
	// errUnanswered: the peer, or the gateway to it, does not answer ARP or neighbour discovery.
	errUnanswered = errors.New("neighbour does not answer")
	// errPermission: the process may not make the kernel resolve a neighbour.
	errPermission = errors.New("not permitted")
	// errClosed: the Interface was closed.
	errClosed = errors.New("interface is closed")
)

// linkError translates the error for a missing interface. ERANGE means that the name is too long.
func linkError(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ERANGE) {
		return errGone
	}
	return fmt.Errorf("look the interface up: %w", err)
}

var errGone = fmt.Errorf("%w, or never was in this network namespace (see: ip link)", ErrInterfaceGone)
