package cm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// node is the device file of the kernel's module.
const node = "/dev/infiniband/rdma_cm"

// Channel is a Manager that uses the kernel's rdma_cm, in the network namespace in which it was
// opened.
type Channel struct {
	file *os.File
	raw  syscall.RawConn
	mu   sync.Mutex
	ids  map[uint64]*identifier
	last uint64 // the last uid assigned
	over error  // why no more events arrive
	done chan struct{}
}

var _ Manager = (*Channel)(nil)

// Open opens a channel. The caller closes it. If the kernel has no rdma_cm for programs the error
// is rdma.ErrUnsupported, and says how to get it.
func Open() (*Channel, error) {
	file, err := os.OpenFile(node, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, openError(err)
	}
	c := &Channel{file: file, ids: make(map[uint64]*identifier), done: make(chan struct{})}
	if c.raw, err = file.SyscallConn(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go c.run()
	return c, nil
}

func openError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("open %s: %w by the running kernel: load its module (modprobe rdma_ucm)", node, rdma.ErrUnsupported)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (give the user access to it, or run as root)", err)
	}
	return err
}

// run receives events from the kernel until the channel is closed.
func (c *Channel) run() {
	defer close(c.done)
	for {
		e, err := c.next()
		if err != nil {
			c.end(err)
			return
		}
		c.deliver(e)
	}
}

// next waits for an event.
func (c *Channel) next() (e event, err error) {
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		var command getEvent
		var answer reported
		failed = ask(int(fd), cmdEvent, &command, &command.response, &answer)
		e = eventOf(&answer)
		return failed != unix.EAGAIN
	})
	if err == nil && failed != nil {
		err = refusal("take an event of rdma_cm", failed)
	}
	return e, err
}

// deliver passes an event to its identifier. Events of destroyed identifiers are dropped, and a
// request for one is refused.
func (c *Channel) deliver(e event) {
	c.mu.Lock()
	i := c.ids[e.uid]
	c.mu.Unlock()
	switch {
	case i != nil:
		i.happens(e)
	case e.kind == ConnectRequest:
		_ = c.destroy(e.id)
	}
}

// end tells all identifiers that no more events arrive.
func (c *Channel) end(err error) {
	c.mu.Lock()
	c.over = err
	c.mu.Unlock()
	for _, i := range c.all() {
		i.finish(err)
	}
}

func (c *Channel) all() (all []*identifier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.ids {
		all = append(all, i)
	}
	return all
}

// do calls f with the descriptor, which stays open until f returns.
func (c *Channel) do(f func(fd int) error) error {
	var failed error
	if err := c.raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func (c *Channel) destroy(id uint32) error {
	return c.do(func(fd int) error {
		var answer handle
		command := destroy{id: id}
		return ask(fd, cmdDestroy, &command, &command.response, &answer)
	})
}

// Open returns the number of identifiers: routes, listeners, requests and connections that are not
// closed.
func (c *Channel) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// Close ends everything that was made from the channel. The kernel informs connected peers and
// refuses open requests. Queue pairs are not closed.
func (c *Channel) Close() error {
	var errs []error
	for _, i := range c.all() {
		errs = append(errs, i.close())
	}
	if err := c.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		errs = append(errs, err)
	}
	<-c.done
	return errors.Join(errs...)
}

// socketOf returns an address in the kernel's form, and its length. The zero AddrPort has length 0.
func socketOf(a netip.AddrPort) (s socket, size uint16, err error) {
	binary.BigEndian.PutUint16(s.port[:], a.Port())
	addr := a.Addr().Unmap()
	switch {
	case !addr.IsValid():
		return socket{}, 0, nil
	case addr.Is4():
		s.family = unix.AF_INET
		copy(s.rest[:], addr.AsSlice())
		return s, unix.SizeofSockaddrInet4, nil
	}
	s.family = unix.AF_INET6
	copy(s.rest[4:], addr.AsSlice()) // after the flow label
	scope, err := zone(addr)
	binary.NativeEndian.PutUint32(s.rest[20:], scope)
	return s, unix.SizeofSockaddrInet6, err
}

// zone returns the index of the interface of a link-local address.
func zone(a netip.Addr) (uint32, error) {
	if a.Zone() == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(a.Zone(), 10, 32); err == nil {
		return uint32(n), nil
	}
	i, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0, fmt.Errorf("address %v: there is no interface %s", a, a.Zone())
	}
	return uint32(i.Index), nil
}

// addrPort is the inverse of socketOf. For anything but IPv4 and IPv6 it returns the zero AddrPort.
func (s *socket) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.port[:])
	switch s.family {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.rest[:4])), port)
	case unix.AF_INET6:
		a := netip.AddrFrom16([16]byte(s.rest[4:20]))
		if scope := binary.NativeEndian.Uint32(s.rest[20:]); scope != 0 && a.IsLinkLocalUnicast() {
			a = a.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		return netip.AddrPortFrom(a, port)
	}
	return netip.AddrPort{}
}

// EventKind is what happened to an identifier: enum rdma_cm_event_type, with its numbers.
type EventKind uint32

const (
	AddressResolved EventKind = iota
	AddressError
	RouteResolved
	RouteError
	ConnectRequest
	ConnectResponse
	ConnectError
	Unreachable
	Rejected
	Established
	Disconnected
	DeviceRemoval
	MulticastJoin
	MulticastError
	AddressChange
	TimewaitExit
)

var eventNames = [...]string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR",
	"UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT"}

// String returns librdmacm's name.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return "RDMA_CM_EVENT_" + eventNames[k]
	}
	return fmt.Sprintf("event %d", uint32(k))
}

// event is an event of the kernel.
type event struct {
	kind   EventKind
	id     uint32 // the kernel's identifier
	uid    uint64 // ours; for a request, the listener's
	status int32  // a negative errno, or why a peer rejects
	// said holds the values that the peer has announced, from our point of view.
	said said
}

// said holds the values that a peer announces for a connection, from our point of view.
type said struct {
	private            []byte
	reads, remoteReads uint8
}

// eventOf translates an event of the kernel.
func eventOf(r *reported) event {
	p := &r.parameters
	e := event{kind: EventKind(r.event), id: r.id, uid: r.uid, status: r.status}
	if e.kind == ConnectRequest || e.kind == ConnectResponse || e.kind == Rejected || e.kind == Established {
		e.said = said{private: append([]byte(nil), p.private[:p.length]...), reads: p.reads, remoteReads: p.remoteReads}
	}
	return e
}
