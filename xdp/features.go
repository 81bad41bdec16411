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
)

// genlHeader is struct genlmsghdr: command, version and two zeros.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// zcSegments asks how many frames the driver puts into one packet with zero copy,
// in the network namespace of the calling thread. A kernel that does not say, as
// none did before 6.6, means one.
func zcSegments(ifindex int) uint32 {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return 1
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{netdevDevGet, 1})
	req.AddData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(ifindex))))
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(replies) != 1 || len(replies[0]) < nl.SizeofGenlmsg {
		return 1
	}
	attrs, err := nl.ParseRouteAttr(replies[0][nl.SizeofGenlmsg:])
	if err != nil {
		return 1
	}
	for _, a := range attrs {
		if a.Attr.Type == netdevZCSegments && len(a.Value) == 4 {
			return max(1, binary.NativeEndian.Uint32(a.Value))
		}
	}
	return 1
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
