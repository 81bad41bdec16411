package roce

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// groups are the multicast groups that the interface joins for queue pairs. The kernel joins a
// group through a socket that never receives. The kernel then answers IGMP and MLD queries, and
// makes the card accept the group's packets.
type groups struct {
	sockets [2]int // of IPv4 and IPv6, in the interface's network namespace; -1: none
	index   int    // of the interface
	members map[rdma.GID]int
}

// begin makes the sockets. If the kernel lacks an address family, joining a group of it fails.
func (g *groups) begin(index int) error {
	g.index, g.members = index, map[rdma.GID]int{}
	for i, family := range []int{unix.AF_INET, unix.AF_INET6} {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("open a socket for multicast groups: %w", err)
		}
		g.sockets[i] = fd
	}
	return nil
}

func (g *groups) close() error {
	var errs []error
	for i, fd := range g.sockets {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
		g.sockets[i] = -1
	}
	return errors.Join(errs...)
}

// join counts another member of a group. The first one makes the interface join it.
func (g *groups) join(group rdma.GID) error {
	if g.members[group] == 0 {
		if err := g.set(group, unix.IP_ADD_MEMBERSHIP, unix.IPV6_JOIN_GROUP); err != nil {
			return fmt.Errorf("join %v: %w", group, joinError(err))
		}
	}
	g.members[group]++
	return nil
}

func joinError(err error) error {
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("%w (raise net.ipv4.igmp_max_memberships: sysctl)", err)
	case errors.Is(err, unix.EBADF):
		return fmt.Errorf("%w: the kernel has no such addresses", rdma.ErrUnsupported)
	}
	return err
}

// leave undoes one join. On an interface that is gone it does nothing.
func (g *groups) leave(group rdma.GID) {
	if g.members[group]--; g.members[group] == 0 {
		delete(g.members, group)
		_ = g.set(group, unix.IP_DROP_MEMBERSHIP, unix.IPV6_LEAVE_GROUP)
	}
}

func (g *groups) set(group rdma.GID, option4, option6 int) error {
	if a := group.Addr(); a.Is4() {
		return unix.SetsockoptIPMreqn(g.sockets[0], unix.IPPROTO_IP, option4, &unix.IPMreqn{Multiaddr: a.As4(), Ifindex: int32(g.index)})
	}
	return unix.SetsockoptIPv6Mreq(g.sockets[1], unix.IPPROTO_IPV6, option6, &unix.IPv6Mreq{Multiaddr: group, Interface: uint32(g.index)})
}

// Attach makes a UD queue pair receive the datagrams to a multicast group, until Detach or Close.
// Senders name the group by an address handle and queue pair 0xffffff. The device does not receive
// what it sends to a group itself.
func (q *queuePair) Attach(group rdma.GID) error {
	return q.life.WhileOpen(func() (err error) {
		q.dev.locked(func() { err = q.attach(group) })
		return err
	})
}

func (q *queuePair) attach(group rdma.GID) error {
	if q.groups[group] {
		return nil
	}
	e := q.dev.datapath.engine
	if err := e.Attach(q.qp, group); err != nil {
		return err
	}
	if err := q.dev.groups.join(group); err != nil {
		e.Detach(q.qp, group)
		return fmt.Errorf("attach %v: %w", q, err)
	}
	if q.groups == nil {
		q.groups = map[rdma.GID]bool{}
	}
	q.groups[group] = true
	return nil
}

// Detach undoes Attach.
func (q *queuePair) Detach(group rdma.GID) error {
	return q.life.WhileOpen(func() error {
		q.dev.locked(func() { q.detach(group) })
		return nil
	})
}

// detach leaves a group. The caller holds the device's lock.
func (q *queuePair) detach(group rdma.GID) {
	if q.groups[group] {
		delete(q.groups, group)
		q.dev.datapath.engine.Detach(q.qp, group)
		q.dev.groups.leave(group)
	}
}
