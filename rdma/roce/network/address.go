package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// address is an address of one of an interface's links.
type address struct {
	link int // its index
	gid  rdma.GID
}

// addresses reads those of the links that can be sent from, in the order in which they
// come into an empty table.
func (k *kernel) addresses(of []link) (found []address, err error) {
	var all []netlink.Addr
	err = k.list(func(h *netlink.Handle) error {
		all, err = h.AddrList(nil, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, l := range of {
		found = append(found, inOrder(usable(l.index, all))...)
	}
	return found, nil
}

// usable are the addresses of a link that are those of one host and are no longer, or never were, in doubt.
// Two that differ in the length of their prefix alone are one.
func usable(index int, all []netlink.Addr) (found []address) {
	const doubtful = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
	for _, a := range all {
		if a.LinkIndex != index || a.Flags&doubtful != 0 || a.IPNet == nil {
			continue
		}
		ip, ok := netip.AddrFromSlice(a.IP)
		if new := (address{index, rdma.GIDOf(ip)}); ok && isHost(ip) && !slices.Contains(found, new) {
			found = append(found, new)
		}
	}
	return found
}

// isHost reports whether an address can be that of a host on a network.
func isHost(ip netip.Addr) bool {
	ip = ip.Unmap()
	return !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsMulticast() && ip != broadcast
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// inOrder sorts addresses of a link as cards have them: that of the link first, then IPv4, then IPv6. See
// drivers/infiniband/core/roce_gid_mgmt.c.
func inOrder(a []address) []address {
	slices.SortStableFunc(a, func(x, y address) int { return cmp.Compare(turn(x.gid), turn(y.gid)) })
	return a
}

func turn(g rdma.GID) int {
	switch {
	case !g.Is4() && g.IsLinkLocal():
		return 0
	case g.Is4():
		return 1
	}
	return 2
}
