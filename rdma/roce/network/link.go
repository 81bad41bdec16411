package network

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// macOf returns the MAC in a hardware address; ok is false if the address is not a MAC.
func macOf(a net.HardwareAddr) (m MAC, ok bool) {
	if len(a) != len(m) {
		return m, false
	}
	return MAC(a), true
}

// link is the state of an interface when it was read.
type link struct {
	index int
	name  string
	mac   MAC
	mtu   int  // bytes
	up    bool // set up, and with a carrier
	tags  [wire.MaxTags]wire.Tag
	veth  bool // an end of a veth pair
}

// linkOf returns the state of an interface; ok is false if it is not Ethernet.
func linkOf(l netlink.Link) (k link, ok bool) {
	a := l.Attrs()
	k = link{index: a.Index, name: a.Name, mtu: a.MTU, up: a.RawFlags&unix.IFF_LOWER_UP != 0, veth: l.Type() == "veth"}
	k.mac, ok = macOf(a.HardwareAddr)
	return k, ok && a.EncapType == "ether"
}

// links reads the interface with an index and the VLANs on it. The interface comes first.
func (k *kernel) links(index int) (stack []link, err error) {
	var all []netlink.Link
	err = k.list(func(h *netlink.Handle) error {
		all, err = h.LinkList()
		return err
	})
	if err != nil {
		return nil, linkError(err)
	}
	at := slices.IndexFunc(all, func(l netlink.Link) bool { return l.Attrs().Index == index })
	if at < 0 {
		return nil, errGone
	}
	base, ok := linkOf(all[at])
	if !ok {
		return nil, ErrNotEthernet
	}
	return withVLANs([]link{base}, all), nil
}

// withVLANs appends the VLANs on the interfaces of a stack, and the VLANs on these, as far as a
// packet has room for tags.
func withVLANs(stack []link, all []netlink.Link) []link {
	for n := 0; n < len(stack); n++ {
		for _, l := range all {
			if v, ok := onTop(stack[n], l); ok {
				stack = append(stack, v)
			}
		}
	}
	return stack
}

// onTop returns the VLAN l if it is one on the interface below. A VLAN that was moved to another
// namespace names its parent in that namespace.
func onTop(below link, l netlink.Link) (link, bool) {
	v, isVLAN := l.(*netlink.Vlan)
	free := slices.Index(below.tags[:], wire.Tag{})
	if !isVLAN || v.ParentIndex != below.index || v.NetNsID >= 0 || free < 0 {
		return link{}, false
	}
	k, ok := linkOf(l)
	k.tags = below.tags
	k.tags[free] = wire.Tag{Type: uint16(v.VlanProtocol), TCI: tci(v)}
	return k, ok
}

// tci returns the VLAN's number, with the priority that it gives to packets without one.
func tci(v *netlink.Vlan) uint16 {
	return uint16(v.EgressQosMap[0]&7)<<13 | uint16(v.VlanId&0xfff)
}

// address is an address of one of an interface's links.
type address struct {
	link int // its index
	gid  rdma.GID
}

// addresses reads the addresses of the links that packets can be sent from, in the order in which
// they enter an empty table.
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

// usable returns the addresses of a link that identify one host and are not waiting for duplicate
// address detection or rejected by it. Two that differ only in the length of their prefix are one.
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

// inOrder sorts the addresses of a link as cards do: the link-local one first, then IPv4, then
// IPv6. See drivers/infiniband/core/roce_gid_mgmt.c.
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

// groupMAC returns the Ethernet address of a group: RFC 1112, section 6.4, and RFC 2464, section 7.
func groupMAC(group rdma.GID) (MAC, error) {
	a := group.Addr()
	switch {
	case !a.IsMulticast():
		return MAC{}, fmt.Errorf("%v is no group: those are 224.0.0.0/4 and ff00::/8", a)
	case a.Is4():
		return MAC{0x01, 0x00, 0x5e, group[13] & 0x7f, group[14], group[15]}, nil
	}
	return MAC{0x33, 0x33, group[12], group[13], group[14], group[15]}, nil
}
