package network

import (
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// macOf is the MAC of a hardware address; ok is false where it is none.
func macOf(a net.HardwareAddr) (m MAC, ok bool) {
	if len(a) != len(m) {
		return m, false
	}
	return MAC(a), true
}

// link is an interface as it was when it was read.
type link struct {
	index int
	name  string
	mac   MAC
	mtu   int  // bytes
	up    bool // administratively, and with a carrier
	tags  [wire.MaxTags]wire.Tag
	veth  bool // an end of a veth pair
}

// linkOf is an interface; ok is false of one that is not Ethernet.
func linkOf(l netlink.Link) (k link, ok bool) {
	a := l.Attrs()
	k = link{index: a.Index, name: a.Name, mtu: a.MTU, up: a.RawFlags&unix.IFF_LOWER_UP != 0, veth: l.Type() == "veth"}
	k.mac, ok = macOf(a.HardwareAddr)
	return k, ok && a.EncapType == "ether"
}

// links reads the interface of the index and, behind it, the VLANs on it.
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

// withVLANs appends the VLANs on the interfaces of a stack, and those on these, as far as a packet has room for tags.
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

// onTop is the VLAN l, if it is one on the interface below. One that was moved to another namespace names
// its parent there.
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

// tci is the VLAN's number and the priority it gives to packets that have none of their own.
func tci(v *netlink.Vlan) uint16 {
	return uint16(v.EgressQosMap[0]&7)<<13 | uint16(v.VlanId&0xfff)
}
