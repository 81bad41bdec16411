package network

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// vlan returns a VLAN interface as the kernel lists it.
func vlan(index, parent, id int, protocol netlink.VlanProtocol) *netlink.Vlan {
	v := &netlink.Vlan{LinkAttrs: netlink.NewLinkAttrs(), VlanId: id}
	v.Index, v.ParentIndex, v.VlanProtocol, v.EncapType = index, parent, protocol, "ether"
	v.HardwareAddr = []byte{2, 0, 0, 0, 0, byte(index)}
	return v
}

// TestVLANs: withVLANs finds the VLANs on an interface and their tags, and no other interfaces.
func TestVLANs(t *testing.T) {
	elsewhere := vlan(7, 1, 70, netlink.VLAN_PROTOCOL_8021Q)
	elsewhere.NetNsID = 0
	prioritised := vlan(3, 2, 0xfff, netlink.VLAN_PROTOCOL_8021Q)
	prioritised.EgressQosMap = map[uint32]uint32{0: 5, 1: 7}
	odd := vlan(8, 1, 80, netlink.VLAN_PROTOCOL_8021Q)
	odd.HardwareAddr = odd.HardwareAddr[:4]
	all := []netlink.Link{
		vlan(4, 3, 40, netlink.VLAN_PROTOCOL_8021Q), // a third tag
		prioritised,
		vlan(2, 1, 20, netlink.VLAN_PROTOCOL_8021AD),
		vlan(5, 9, 50, netlink.VLAN_PROTOCOL_8021Q),                       // on another interface
		&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{ParentIndex: 1}},    // no VLAN
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 6, Name: "d"}}, // not on any interface
		elsewhere, odd,
	}
	got := withVLANs([]link{{index: 1}}, all)
	outer := wire.Tag{Type: 0x88a8, TCI: 20}
	want := []link{
		{index: 1},
		{index: 2, mac: MAC{2, 0, 0, 0, 0, 2}, tags: [2]wire.Tag{outer}},
		{index: 3, mac: MAC{2, 0, 0, 0, 0, 3}, tags: [2]wire.Tag{outer, {Type: 0x8100, TCI: 0xafff}}},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
