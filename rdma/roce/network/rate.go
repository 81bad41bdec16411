package network

import (
	"encoding/binary"
	"math"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/genl"
)

// Rate returns the rate of the link in bits per second, as it was when the interface was opened; 0: the driver does
// not tell.
func (i *Interface) Rate() uint64 { return i.rate }

// rateOf asks for the rate of an interface. Documentation/networking/ethtool-netlink.rst.
func rateOf(index int) uint64 {
	header := nl.NewRtAttr(unix.ETHTOOL_A_LINKMODES_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	a, err := genl.Ask(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_LINKMODES_GET, header)
	if err != nil || len(a[unix.ETHTOOL_A_LINKMODES_SPEED]) != 4 {
		return 0
	}
	megabits := binary.NativeEndian.Uint32(a[unix.ETHTOOL_A_LINKMODES_SPEED])
	if megabits == math.MaxUint32 { // SPEED_UNKNOWN
		return 0
	}
	return uint64(megabits) * 1e6
}
