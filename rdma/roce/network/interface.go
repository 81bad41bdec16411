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

// Interface is a network interface, with the VLANs on it.
type Interface struct {
	kernel  *kernel
	watch   *watch
	index   int
	done    chan struct{} // closed by Close
	ended   chan struct{} // closed by the goroutine that watches
	once    sync.Once     // of Close
	counter counters
	// order is held from asking the kernel about a way that is kept until the answer is noted, and while its
	// messages of neighbours are: what is older must not be noted later. It is taken before mu.
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

// Open looks up the interface in the network namespace of the calling thread. The caller closes it. The error is ErrInterfaceGone
// where there is none, or ErrNotEthernet.
func Open(name string) (*Interface, error) {
	i, err := open(name, refreshEvery)
	if err != nil {
		return nil, fmt.Errorf("open network interface %.128s: %w", name, err)
	}
	return i, nil
}

// open is Open with another time between two looks at the neighbours of ways that are kept.
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

// start listens first and reads then, so that no change falls between.
func (i *Interface) start(name string, refresh time.Duration) (err error) {
	defer func() {
		if err != nil {
			close(i.ended) // nobody watches
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
	i.reported.link, i.reported.table = i.links[0].public(), append(table(nil), i.table...)
	go i.watch.run()
	return nil
}

// find looks the name up and reads what there is.
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

// reread has the Interface be as the kernel has it now.
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

// Close ends calls that wait, and gives everything back; what is kept need not be dropped. Closing again does
// nothing.
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

// unusable says why there is nothing to be had of the interface. The caller has the lock.
func (i *Interface) unusable() error {
	select {
	case <-i.done:
		return ErrClosed
	default:
	}
	if i.gone {
		return ErrInterfaceGone
	}
	return nil
}

// Link is how an interface is.
type Link struct {
	Name string
	MAC  MAC // of the interface; a VLAN on it may have another
	MTU  int // the longest packet in bytes, Ethernet's header not included
	Up   bool
}

func (l link) public() Link { return Link{l.name, l.mac, l.mtu, l.up} }

// Link is how the interface is now. It is up when it is set up and its link works. Of one that is gone it is how
// it was.
func (i *Interface) Link() Link {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.links[0].public()
}

// Index is the number the kernel has for the interface in its namespace.
func (i *Interface) Index() int { return i.index }

// Name is what the interface is called now.
func (i *Interface) Name() string { return i.Link().Name }

// MAC is Link's.
func (i *Interface) MAC() MAC { return i.Link().MAC }

// MTU is Link's.
func (i *Interface) MTU() int { return i.Link().MTU }

// Up is Link's.
func (i *Interface) Up() bool { return i.Link().Up }

// Veth says whether it is an end of a veth pair.
func (i *Interface) Veth() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.links[0].veth
}

// GIDs are the places of the table that are in use, by index. The slice is the caller's.
func (i *Interface) GIDs() []rdma.GIDEntry {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.table.entries()
}

// Local is an address of an interface, or of a VLAN on it.
type Local struct {
	GID  rdma.GID
	Tags [wire.MaxTags]wire.Tag // of packets on its VLAN, the outer first
}

// Locals are the addresses of GIDs. The slice is the caller's.
func (i *Interface) Locals() (all []Local) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range i.table.entries() {
		all = append(all, Local{e.GID, i.link(e.Interface).tags})
	}
	return all
}

// placeName is a place of the table for error texts.
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

// link is the one of an index, which the table has addresses of. The caller has the lock.
func (i *Interface) link(index int) link {
	for _, l := range i.links {
		if l.index == index {
			return l
		}
	}
	return i.links[0]
}

// Counters say how it went since Open.
type Counters struct {
	Overruns uint64 // the kernel had more to say than its buffer holds, and all was read again
	Rereads  uint64 // links and addresses were read again
	Looks    uint64 // at the neighbours of ways that are kept
	Failures uint64 // of questions to the kernel that are asked again later, permission for looks included
}

// counters are Counters that are counted in by the goroutine that watches and by Keep.
type counters struct {
	overruns, rereads, looks, failures atomic.Uint64
}

// Counters may be called at any time, after Close too.
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
	// ErrInterfaceGone: the interface was deleted or moved to another network namespace, or never was.
	ErrInterfaceGone = errors.New("interface is gone")
	// ErrInterfaceDown: it is set down, or its link does not work.
	ErrInterfaceDown = errors.New("interface is down")
	// ErrNotEthernet: packets of the interface have no Ethernet header.
	ErrNotEthernet = errors.New("not an Ethernet interface")
	// ErrSource: the place of the table is empty, or has an address of the other family than the peer's.
	ErrSource = errors.New("source address does not fit")
	// ErrNoRoute: the kernel's routes lead to the peer nowhere, or not over this interface.
	ErrNoRoute = errors.New("no route")
	// ErrUnanswered: the peer, or the gateway to it, does not answer to ARP or neighbour discovery.
	ErrUnanswered = errors.New("neighbour does not answer")
	// ErrPermission: the process may not have the kernel ask for a neighbour.
	ErrPermission = errors.New("not permitted")
	// ErrClosed: the Interface was closed.
	ErrClosed = errors.New("interface is closed")
)

// linkError gives a missing interface its type; ERANGE is a name that is too long for one.
func linkError(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ERANGE) {
		return errGone
	}
	return fmt.Errorf("look the interface up: %w", err)
}

var errGone = fmt.Errorf("%w, or never was in this network namespace (see: ip link)", ErrInterfaceGone)
