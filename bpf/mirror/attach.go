package mirror

import (
	"errors"
	"fmt"

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
