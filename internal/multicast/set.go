package multicast

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Join names a group, and where the host joins it.
type Join struct {
	Interface string     // an Ethernet interface, or a VLAN on one
	Group     netip.Addr // a multicast address
	Source    netip.Addr // the only sender that is wanted; the zero value: any
}

// String returns the join as text for people: 232.1.1.1 from 10.0.0.5 on eth1.
func (j Join) String() string {
	if j.Source.IsValid() {
		return fmt.Sprintf("%s from %s on %s", j.Group, j.Source, j.Interface)
	}
	return fmt.Sprintf("%s on %s", j.Group, j.Interface)
}

// State is a join of a set, and why the host is not a member now; nil: it is.
type State struct {
	Join
	Err error
}

// Set is the memberships of one owner. The zero value has none and is closed. Any goroutine may call its methods.
type Set struct {
	mu      sync.Mutex
	open    bool
	members []*member // in the order of the joins
}

// member is one membership.
type member struct {
	join  Join
	fd    int
	index int   // of the interface when it was joined
	err   error // why the host is not a member now
}

// Open joins groups. The calling thread must be in the network namespace of the interfaces. After an error nothing
// is joined and the set is closed.
func (s *Set) Open(joins []Join) error {
	s.mu.Lock()
	s.open = true
	s.mu.Unlock()
	if err := s.Update(joins); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Update replaces the joins: it joins the new ones and then leaves those that are not in the list. Memberships in
// both lists are not interrupted. After an error the set is as before. It does nothing if the set is closed.
func (s *Set) Update(joins []Join) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return nil
	}
	var next, added []*member
	for _, j := range joins {
		if i := slices.IndexFunc(s.members, func(m *member) bool { return m.join == j }); i >= 0 {
			next = append(next, s.members[i])
			continue
		}
		m, err := join(j)
		if err != nil {
			return errors.Join(err, leave(added))
		}
		next, added = append(next, m), append(added, m)
	}
	gone := slices.DeleteFunc(s.members, func(m *member) bool { return slices.Contains(next, m) })
	s.members = next
	return leave(gone)
}

// Close leaves all groups. The set may be opened again.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.members
	s.open, s.members = false, nil
	return leave(all)
}

// Check joins again where an interface was removed and made again: the kernel has forgotten the membership. It
// returns an error for joins of which the host is not a member now. Call it once in a while.
func (s *Set) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.members {
		m.check()
		errs = append(errs, m.err)
	}
	return errors.Join(errs...)
}

// States returns the joins in their order.
func (s *Set) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]State, len(s.members))
	for i, m := range s.members {
		all[i] = State{m.join, m.err}
	}
	return all
}

// join opens a socket and joins a group with it.
func join(j Join) (*member, error) {
	family := unix.AF_INET
	if j.Group.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("join %s: open a socket: %w", j, err)
	}
	m := &member{join: j, fd: fd}
	if m.index, err = m.find(); err == nil {
		err = m.ipv6Off()
	}
	if err == nil {
		err = m.set(m.index)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return m, nil
}

// ipv6Off returns an error if the interface has no IPv6 now. The kernel then accepts a join and reports nothing.
func (m *member) ipv6Off() error {
	if m.join.Group.Is4() {
		return nil
	}
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + m.join.Interface + "/disable_ipv6")
	if err != nil || strings.TrimSpace(string(off)) != "1" { // without the file the kernel's answer to the join decides
		return nil
	}
	return m.noIPv6(unix.ENODEV)
}

func (m *member) noIPv6(err error) error {
	return fmt.Errorf("join %s: %w (IPv6 is off on the interface: sysctl net.ipv6.conf.%s.disable_ipv6=0)", m.join, err, m.join.Interface)
}

// leave closes the sockets of memberships.
func leave(all []*member) error {
	var errs []error
	for _, m := range all {
		if err := unix.Close(m.fd); err != nil {
			errs = append(errs, fmt.Errorf("leave %s: close the socket: %w", m.join, err))
		}
	}
	return errors.Join(errs...)
}

// check joins again if the interface is another one than before.
func (m *member) check() {
	index, err := m.find()
	if err == nil && index != m.index {
		_ = m.forget() // the kernel may have forgotten it already
		if err = m.set(index); err == nil {
			m.index = index
		}
	}
	m.err = err
}

// find returns the index of the interface in the namespace of the socket.
func (m *member) find() (int, error) {
	r, err := unix.NewIfreq(m.join.Interface)
	if err == nil {
		err = unix.IoctlIfreq(m.fd, unix.SIOCGIFINDEX, r)
	}
	switch {
	case errors.Is(err, unix.ENODEV):
		return 0, fmt.Errorf("join %s: there is no such interface (for a VLAN: ip link add link PARENT name %s type vlan id N, and set it up)", m.join, m.join.Interface)
	case err != nil:
		return 0, fmt.Errorf("join %s: look for the interface: %w", m.join, err)
	}
	return int(r.Uint32()), nil
}

// Sizes and offsets of struct group_req and struct group_source_req on 64-bit machines (include/uapi/linux/in.h).
const (
	storageLen = 128 // struct sockaddr_storage
	groupAt    = 8   // behind gr_interface and padding
	sourceAt   = groupAt + storageLen
)

// set joins the group on the interface with this index.
func (m *member) set(index int) error {
	length, option := sourceAt, unix.MCAST_JOIN_GROUP
	if m.join.Source.IsValid() {
		length, option = sourceAt+storageLen, unix.MCAST_JOIN_SOURCE_GROUP
	}
	err := m.option(option, index, length)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENODEV) && m.join.Group.Is6():
		return m.noIPv6(err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("join %s: %w (the interface has no IPv4: its MTU is less than 68 bytes)", m.join, err)
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("join %s: %w (raise net.core.optmem_max)", m.join, err)
	}
	return fmt.Errorf("join %s: %w", m.join, err)
}

// forget leaves the group on the interface that was there before, whatever the source.
func (m *member) forget() error { return m.option(unix.MCAST_LEAVE_GROUP, m.index, sourceAt) }

// option sets an option of the socket that has a group, and a source if there is room for it.
func (m *member) option(name, index, length int) error {
	b := make([]byte, length)
	binary.NativeEndian.PutUint32(b, uint32(index))
	putAddress(b[groupAt:], m.join.Group)
	if length > sourceAt {
		putAddress(b[sourceAt:], m.join.Source)
	}
	level := unix.IPPROTO_IP
	if m.join.Group.Is6() {
		level = unix.IPPROTO_IPV6
	}
	return unix.SetsockoptString(m.fd, level, name, string(b))
}

// putAddress writes a struct sockaddr_in or sockaddr_in6 without a port.
func putAddress(b []byte, ip netip.Addr) {
	family, at := uint16(unix.AF_INET), 4
	if ip.Is6() {
		family, at = unix.AF_INET6, 8
	}
	binary.NativeEndian.PutUint16(b, family)
	copy(b[at:], ip.AsSlice())
}
