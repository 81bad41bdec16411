package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// neighbourKey is a neighbour's name: its address, and the index of the interface it is on.
type neighbourKey struct {
	link int
	ip   netip.Addr
}

// neighbour is what the kernel's table has of one.
type neighbour struct {
	state int // netlink.NUD_*; NUD_NONE also where there is no entry
	mac   MAC
}

// usableStates are those in which the kernel itself would send: NUD_VALID in include/net/neighbour.h.
const usableStates = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE | netlink.NUD_PROBE | netlink.NUD_STALE | netlink.NUD_DELAY

// valid reports whether packets can be sent to it.
func (n neighbour) valid() bool { return n.state&usableStates != 0 && n.mac != MAC{} }

// idle reports whether the kernel does nothing at present to learn whether it is there.
func (n neighbour) idle() bool {
	return n.state == netlink.NUD_NONE || n.state&(netlink.NUD_STALE|netlink.NUD_FAILED) != 0
}

// silent reports whether the kernel has given up asking.
func (n neighbour) silent() bool { return n.state&netlink.NUD_FAILED != 0 }

// neighbour looks one up: RTM_GETNEIGH with an address, neigh_get in net/core/neighbour.c. (The netlink package
// can list them only, and there may be thousands.)
func (k *kernel) neighbour(of neighbourKey) (n neighbour, err error) {
	var answers [][]byte
	err = k.ask(func(*netlink.Handle) error {
		r := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
		r.Sockets = k.sockets
		r.AddData(&netlink.Ndmsg{Family: of.family(), Index: uint32(of.link)})
		r.AddData(nl.NewRtAttr(netlink.NDA_DST, of.ip.AsSlice()))
		answers, err = r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		return err
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return neighbour{}, nil
	case err != nil:
		return neighbour{}, neighbourError("look up", of, err)
	}
	for _, answer := range answers {
		if e, err := netlink.NeighDeserialize(answer); err == nil {
			n = neighbourOf(e)
		}
	}
	return n, nil
}

func (h neighbourKey) family() uint8 {
	if h.ip.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func neighbourOf(e *netlink.Neigh) neighbour {
	n := neighbour{state: e.State}
	n.mac, _ = macOf(e.HardwareAddr)
	return n
}

// use tells the kernel that a neighbour is in use, which makes it find out its MAC, or check an
// old one, as a packet to it would. It must not be told of a permanent entry, which would become
// an ordinary one: __neigh_update in net/core/neighbour.c.
func (k *kernel) use(of neighbourKey) error {
	err := k.ask(func(h *netlink.Handle) error {
		return h.NeighSet(&netlink.Neigh{LinkIndex: of.link, Family: int(of.family()), IP: net.IP(of.ip.AsSlice()), Flags: netlink.NTF_USE})
	})
	if err != nil {
		return neighbourError("ask for", of, err)
	}
	return nil
}

// look looks a neighbour up that is in use, as it is before the kernel is told so. Where that is not permitted, what the kernel
// has must do.
func (k *kernel) look(of neighbourKey) (neighbour, error) {
	n, err := k.neighbour(of)
	if err == nil && n.idle() {
		err = k.use(of)
	}
	if n.valid() && errors.Is(err, ErrPermission) {
		err = nil
	}
	return n, err
}

func neighbourError(step string, of neighbourKey, err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s neighbour %v: %w: %w (run as root, or with CAP_NET_ADMIN)", step, of.ip, ErrPermission, err)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s neighbour %v: %w", step, of.ip, errGone)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("%s neighbour %v: %w (ip link set ... up)", step, of.ip, ErrInterfaceDown)
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("%s neighbour %v: the kernel's table of neighbours is full: %w (raise net.ipv4.neigh.default.gc_thresh3 and that of ipv6)", step, of.ip, err)
	}
	return fmt.Errorf("%s neighbour %v: %w", step, of.ip, err)
}
