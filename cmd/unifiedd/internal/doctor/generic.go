package doctor

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/genl"
)

// attrs are the attributes of a generic netlink message.
type attrs genl.Attributes

func ask(family string, command uint8, request ...*nl.RtAttr) (attrs, error) {
	a, err := genl.Ask(family, command, request...)
	return attrs(a), err
}

// number returns an unsigned attribute of up to eight bytes, in the machine's byte order.
func (a attrs) number(kind uint16) (uint64, bool) {
	switch b := a[kind]; len(b) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(b)), true
	case 8:
		return binary.NativeEndian.Uint64(b), true
	}
	return 0, false
}

// The netdev family: Documentation/netlink/specs/netdev.yaml, Linux 6.3.
const (
	netdevDevGet      = 1
	netdevIfindex     = 1
	netdevXDPFeatures = 3
)

// Bits of a device's XDP features: enum netdev_xdp_act in linux/netdev.h.
const (
	xdpBasic    = 1 << 0
	xdpRedirect = 1 << 1
	xdpZeroCopy = 1 << 3
	xdpRxSG     = 1 << 5
)

// xdpFeatures returns the XDP features that the driver of an interface reports.
func xdpFeatures(index int) (uint64, error) {
	a, err := ask("netdev", netdevDevGet, nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(index))))
	if err != nil {
		return 0, err
	}
	features, found := a.number(netdevXDPFeatures)
	if !found {
		return 0, fmt.Errorf("ask netlink family netdev: the answer names no XDP features")
	}
	return features, nil
}

// header returns the attribute that names the interface in a request of the ethtool family:
// Documentation/networking/ethtool-netlink.rst.
func header(kind int, index int) *nl.RtAttr {
	h := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	h.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	return h
}

// channels has the number of queues of each kind that an interface has, and the largest number.
type channels struct{ rx, tx, most uint64 }

func askChannels(index int) (channels, error) {
	a, err := ask(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_CHANNELS_GET, header(unix.ETHTOOL_A_CHANNELS_HEADER, index))
	if err != nil {
		return channels{}, err
	}
	n := func(kind uint16) uint64 { v, _ := a.number(kind); return v }
	combined := n(unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT)
	return channels{
		rx:   n(unix.ETHTOOL_A_CHANNELS_RX_COUNT) + combined,
		tx:   n(unix.ETHTOOL_A_CHANNELS_TX_COUNT) + combined,
		most: n(unix.ETHTOOL_A_CHANNELS_RX_MAX) + n(unix.ETHTOOL_A_CHANNELS_COMBINED_MAX),
	}, nil
}

// askOffloads returns the names of an interface's active features, as
// net/ethtool/common.c has them.
func askOffloads(index int) (map[string]bool, error) {
	a, err := ask(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_FEATURES_GET, header(unix.ETHTOOL_A_FEATURES_HEADER, index))
	if err != nil {
		return nil, err
	}
	set, err := genl.Parse(a[unix.ETHTOOL_A_FEATURES_ACTIVE])
	if err != nil {
		return nil, err
	}
	bits, err := nl.ParseRouteAttr(set[unix.ETHTOOL_A_BITSET_BITS])
	if err != nil {
		return nil, err
	}
	active := make(map[string]bool)
	for _, b := range bits {
		bit, err := genl.Parse(b.Value)
		if err != nil {
			return nil, err
		}
		active[unix.ByteSliceToString(bit[unix.ETHTOOL_A_BITSET_BIT_NAME])] = true
	}
	return active, nil
}
