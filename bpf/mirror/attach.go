package mirror

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attach runs a program at one hook of an interface, before all others there, until it is undone.
func (m *Mirror) attach(p *ebpf.Program, index int, d Direction, undo *cleanup) error {
	if m.filters {
		return m.attachFilter(p, index, d, undo)
	}
	hook := ebpf.AttachTCXIngress
	if d == Egress {
		hook = ebpf.AttachTCXEgress
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: hook, Anchor: link.Head()})
	switch {
	case err == nil:
		undo.add(l.Close)
		if index == m.index {
			m.links = append(m.links, l)
		}
	case errors.Is(err, ebpf.ErrNotSupported):
		m.filters = true
		return m.attachFilter(p, index, d, undo)
	default:
		err = fmt.Errorf("attach to the %s of interface %d: %w%s", d, index, err, remedy(err))
	}
	return err
}

// attachFilter is attach before Linux 6.6. It adds a filter to the clsact qdisc, and adds the qdisc
// if there is none. The filter's name has the mirror's number and says whether a mirror made the
// qdisc.
func (m *Mirror) attachFilter(p *ebpf.Program, index int, d Direction, undo *cleanup) error {
	made, err := m.provideQdisc(index)
	if err != nil {
		return fmt.Errorf("make the qdisc clsact on interface %d: %w%s", index, err, remedy(err))
	}
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent(d), Handle: uint32(m.slot.number) + 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          p.FD(), Name: filterName(m.slot.number, made || m.ownsQdisc(index)), DirectAction: true,
	}
	undo.add(func() error { return m.removeFilters(index) })
	if err := m.handle.FilterAdd(f); err != nil {
		return fmt.Errorf("add a filter to the %s of interface %d: %w%s", d, index, err, remedy(err))
	}
	return nil
}

// parent returns the hook of a direction.
func parent(d Direction) uint32 {
	if d == Egress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// provideQdisc adds a clsact qdisc if there is none, and reports whether it did.
func (m *Mirror) provideQdisc(index int) (made bool, err error) {
	err = m.handle.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return err == nil, err
}

// slots is the most mirrors in one network namespace.
const slots = 64

// slot is a number that one mirror of a network namespace owns. The kernel keeps the socket's name
// per network namespace, and releases it with the process.
type slot struct {
	number int
	fd     int
}

// takeSlot takes the lowest free number.
func takeSlot() (*slot, error) {
	for n := range slots {
		s, err := claim(n)
		if s != nil || err != nil {
			return s, err
		}
	}
	return nil, fmt.Errorf("all %d numbers for mirrors are taken in this network namespace (see: ip link, ss -xa)", slots)
}

// claim takes a number; nil if it has an owner.
func claim(number int) (*slot, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@unifiedd/mirror/%d", number)})
	if err == nil {
		return &slot{number, fd}, nil
	}
	_ = unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, nil
	}
	return nil, fmt.Errorf("take mirror number %d: %w", number, err)
}

func (s *slot) close() error { return unix.Close(s.fd) }

// Check returns the interface's present name and whether it is up. Errors match ErrGone, or ErrDetached when
// packets should be copied and are not.
func (m *Mirror) Check() (name string, up bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return m.name, false, fmt.Errorf("mirror of %s: %w", m.name, net.ErrClosed)
	}
	l, err := m.handle.LinkByIndex(m.index)
	if err != nil {
		return m.name, false, fmt.Errorf("mirror of %s: %w", m.name, linkError(err))
	}
	a := l.Attrs()
	if err := m.checkAttached(); err != nil {
		return a.Name, false, fmt.Errorf("mirror of %s: %w", a.Name, err)
	}
	return a.Name, a.Flags&net.FlagUp != 0, nil
}

// checkAttached checks that the programs are where Start put them. m.mu is held.
func (m *Mirror) checkAttached() error {
	if m.attached == nil {
		return nil
	}
	if m.filters {
		return m.checkFilters()
	}
	for _, l := range m.links {
		info, err := l.Info()
		if err != nil {
			return fmt.Errorf("ask for the program: %w", err)
		}
		if tcx := info.TCX(); tcx != nil && tcx.Ifindex != uint32(m.index) {
			return errDetached
		}
	}
	return nil
}

func (m *Mirror) checkFilters() error {
	ours, _, err := filters(m.handle, m.index)
	if err != nil {
		return err
	}
	there := 0
	for _, f := range ours {
		if f.number == m.slot.number {
			there++
		}
	}
	if there < len(m.directions) {
		return errDetached
	}
	return nil
}
