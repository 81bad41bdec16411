package mirror

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/genl"
)

// offloads are left to the kernel for copies. Otherwise the capture would miss their results, and
// lose a tag that is stored beside the packet. Without checksum offload there is no segmentation
// offload either (netdev_fix_features, net/core/dev.c), so copies are segmented to the MTU.
var offloads = []string{"tx-checksum-ip-generic", "tx-checksum-sctp", "tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"}

// offloadsOff makes the kernel do for packets that an interface sends what it would leave to a
// card.
func offloadsOff(index int) error {
	header := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	wanted := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_WANTED|unix.NLA_F_NESTED, nil)
	bits := wanted.AddRtAttr(unix.ETHTOOL_A_BITSET_BITS|unix.NLA_F_NESTED, nil)
	for _, name := range offloads { // named without a value: off
		bit := bits.AddRtAttr(unix.ETHTOOL_A_BITSET_BITS_BIT|unix.NLA_F_NESTED, nil)
		bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_NAME, nl.ZeroTerminated(name))
	}
	return genl.Set(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_FEATURES_SET, header, wanted)
}
