package xdp

import (
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of the netdev family: include/uapi/linux/netdev.h.
const (
	netdevFamily     = "netdev"
	netdevDevGet     = 1 // NETDEV_CMD_DEV_GET
	netdevIfindex    = 1 // NETDEV_A_DEV_IFINDEX
	netdevZCSegments = 4 // NETDEV_A_DEV_XDP_ZC_MAX_SEGS
	netdevMetadata   = 5 // NETDEV_A_DEV_XDP_RX_METADATA_FEATURES

	metadataTimestamp = 1 << 0 // NETDEV_XDP_RX_METADATA_TIMESTAMP
)

// genlHeader is struct genlmsghdr: command, version and two zeros.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// zcSegments asks how many frames the driver puts into one packet with zero copy,
// in the network namespace of the calling thread. A kernel that does not say, as
// none did before 6.6, means one.
func zcSegments(ifindex int) uint32 {
	if v := netdevAttribute(ifindex, netdevZCSegments); len(v) == 4 {
		return max(1, binary.NativeEndian.Uint32(v))
	}
	return 1
}

// stampsArrival asks whether the driver gives programs times of the card's clock, in the
// network namespace of the calling thread. Kernels say so since 6.7.
func stampsArrival(ifindex int) error {
	v := netdevAttribute(ifindex, netdevMetadata)
	switch {
	case len(v) != 8:
		return &UnsupportedError{"times of the card's own clock", "Linux 6.7", unix.EOPNOTSUPP}
	case binary.NativeEndian.Uint64(v)&metadataTimestamp == 0:
		return errors.New("the driver gives programs no times of the card's clock")
	}
	return nil
}

// netdevAttribute is what the netdev family says of an interface; nil where it does not.
func netdevAttribute(ifindex int, attribute uint16) []byte {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return nil
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{netdevDevGet, 1})
	req.AddData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(ifindex))))
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(replies) != 1 || len(replies[0]) < nl.SizeofGenlmsg {
		return nil
	}
	attrs, err := nl.ParseRouteAttr(replies[0][nl.SizeofGenlmsg:])
	if err != nil {
		return nil
	}
	for _, a := range attrs {
		if a.Attr.Type == attribute {
			return a.Value
		}
	}
	return nil
}

// takesFragments reports whether the kernel knows packets of several frames. It
// looks at the flags of a bind before it looks for the interface, which number 0 is
// of none (xsk_bind in net/xdp/xsk.c).
func takesFragments() error {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socketError(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_USE_SG}); errors.Is(err, unix.EINVAL) {
		return &UnsupportedError{"packets of several frames", "Linux 6.6", err}
	}
	return nil
}
