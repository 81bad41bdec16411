package roce

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// groups are the multicast groups that an interface is in for queue pairs: the kernel joins them by sockets that nothing is
// received from, answers routers' questions, and has the card let their packets in.
type groups struct {
	sockets [2]int // of IPv4 and IPv6, made in the interface's network namespace; -1: there is none
	index   int    // of the interface
	members map[rdma.GID]int
}

// begin makes the sockets. A kernel without one of the families has no groups of it.
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

// join has the interface be in a group once more.
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

// leave is the contrary. An interface that is gone is in no group.
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

// Attach has a queue pair of datagrams get those to a multicast group, until Detach or Close. Senders name the group by an
// address handle and queue pair 0xffffff. What the device itself sends to a group does not come back to it.
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

// Detach ends what Attach began.
func (q *queuePair) Detach(group rdma.GID) error {
	return q.life.WhileOpen(func() error {
		q.dev.locked(func() { q.detach(group) })
		return nil
	})
}

// detach leaves a group that the queue pair is in. The device is locked.
func (q *queuePair) detach(group rdma.GID) {
	if q.groups[group] {
		delete(q.groups, group)
		q.dev.datapath.engine.Detach(q.qp, group)
		q.dev.groups.leave(group)
	}
}
