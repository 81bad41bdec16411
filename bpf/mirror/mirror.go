package mirror

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Config says what Open mirrors.
type Config struct {
	// Interface is the name of an Ethernet interface, or of the loopback.
	Interface string
	// Directions are the directions to copy, each once.
	Directions []Direction
	// Promiscuous makes the interface receive packets for other hosts too.
	Promiscuous bool

	filters bool // as before Linux 6.6, for tests
}

// Mirror is an interface whose packets are copied.
type Mirror struct {
	name       string // of the interface when it was opened
	index      int    // of the interface
	directions []Direction
	filters    bool // instead of links
	handle     *netlink.Handle
	slot       *slot
	pair       pair
	copiers    []*ebpf.Program // one for each direction
	failed     *ebpf.Map       // copies the kernel refused, by direction
	undo       cleanup

	mu       sync.Mutex  // Counters and Check may be called while another goroutine closes
	attached cleanup     // while packets are copied
	links    []link.Link // of those; none where filters do it
	closed   bool
	counters Counters // when last read
}

// cleanup has a function for each step that undoes it, in the order of the steps. run calls them in
// reverse.
type cleanup []func() error

func (c *cleanup) add(undo func() error) { *c = append(*c, undo) }

// run undoes everything, once, and joins the errors.
func (c *cleanup) run() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}

// Open makes the pair. First it removes mirrors that killed processes have left in the network
// namespace.
func Open(c Config) (_ *Mirror, err error) {
	m := &Mirror{name: c.Interface, directions: c.Directions, filters: c.filters}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("mirror %s: %w", c.Interface, err), m.Close())
		}
	}()
	if m.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	m.undo.add(func() error { m.handle.Close(); return nil })
	mtu, err := m.find()
	if err != nil {
		return nil, err
	}
	if err := removeStale(m.handle); err != nil {
		return nil, err
	}
	if m.slot, err = takeSlot(); err != nil {
		return nil, err
	}
	m.undo.add(m.slot.close)
	if err := m.provide(mtu); err != nil {
		return nil, err
	}
	if c.Promiscuous {
		if err := m.listen(); err != nil {
			return nil, err
		}
	}
	return m, m.loadCopiers()
}

// find looks up the interface to mirror, and the length of its packets.
func (m *Mirror) find() (mtu int, err error) {
	l, err := m.handle.LinkByName(m.name)
	if err != nil {
		return 0, linkError(err)
	}
	a := l.Attrs()
	m.name = a.Name // it may have been an alternative one
	if a.EncapType != "ether" && a.EncapType != "loopback" {
		return 0, fmt.Errorf("%w: it is of type %q (mirror the interface below it)", errNotEthernet, a.EncapType)
	}
	m.index = a.Index
	if a.EncapType == "loopback" { // every packet that leaves also arrives
		m.directions = []Direction{Ingress}
	}
	return a.MTU, nil
}

// linkError makes the error for a missing interface match ErrGone.
func linkError(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w, or never was in this network namespace (see: ip link)", ErrGone)
	}
	return fmt.Errorf("look the interface up: %w", err)
}

// provide makes the pair and closes its far end to the host.
func (m *Mirror) provide(mtu int) (err error) {
	if m.pair, err = makePair(m.handle, m.slot.number, m.name, mtu); err != nil {
		return err
	}
	m.undo.add(func() error { return m.pair.remove(m.handle) })
	drop, err := load("ufd_drop", dropAll())
	if err != nil {
		return err
	}
	m.undo.add(drop.Close)
	if err := m.attach(drop, m.pair.far, Ingress, &m.undo); err != nil {
		return err
	}
	return m.pair.up(m.handle)
}

// loadCopiers loads a program for each direction.
func (m *Mirror) loadCopiers() (err error) {
	if m.failed, err = newCounters(); err != nil {
		return err
	}
	m.undo.add(m.failed.Close)
	for _, d := range m.directions {
		p, err := load("ufd_mirror", copyTo(m.pair.near, d, m.failed.FD()))
		if err != nil {
			return err
		}
		m.undo.add(p.Close)
		m.copiers = append(m.copiers, p)
	}
	return nil
}

// Start begins to copy packets. It must run in the network namespace of Open.
func (m *Mirror) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, d := range m.directions {
		if err := m.attach(m.copiers[i], m.index, d, &m.attached); err != nil {
			m.links = nil
			return errors.Join(fmt.Errorf("mirror %s: %w", m.name, err), m.attached.run())
		}
	}
	return nil
}

// Stop stops copying. Earlier copies may still arrive.
func (m *Mirror) Stop() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.links = nil
	return m.attached.run()
}

// Interface is the name of the interface on which copies arrive: on queue 0 the copies of packets
// that arrived, on queue 1 of packets that the host sent.
func (m *Mirror) Interface() string { return farName(m.slot.number) }

// Directions returns the directions that are copied. For the loopback that is Ingress alone, since
// every packet that leaves it also arrives.
func (m *Mirror) Directions() []Direction { return m.directions }

// Close stops copying and removes everything. A second call does nothing.
func (m *Mirror) Close() error {
	err := m.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed && m.failed != nil {
		_ = m.count() // counters that cannot be read keep their last values
	}
	m.closed = true
	return errors.Join(err, m.undo.run())
}

// Direction says which packets of an interface are copied.
type Direction uint8

// The directions. A packet's is also the queue of the pair on which its copy arrives.
const (
	Ingress Direction = iota // packets that arrive
	Egress                   // packets that the host sends
	directions
)

// String returns the word for the direction.
func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

// Errors that callers match with errors.Is.
var (
	// ErrGone means that the mirrored interface, or one end of the pair, no longer exists.
	ErrGone = errors.New("the interface is gone")
	// errNotEthernet means that packets of an interface have no Ethernet header.
	errNotEthernet = errors.New("its packets have no Ethernet header")
	// errDetached means that another process detached the program that copies.
	errDetached = errors.New("the program that copies was taken off")
)

// listen makes the interface also receive packets for other hosts. The kernel ends this with the
// socket, also after a crash.
func (m *Mirror) listen() error {
	// With protocol zero the socket itself receives no packet.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket for promiscuous mode: %w", err)
	}
	m.undo.add(func() error { return unix.Close(fd) })
	wanted := &unix.PacketMreq{Ifindex: int32(m.index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, wanted); err != nil {
		return fmt.Errorf("set promiscuous mode: %w", err)
	}
	return nil
}
