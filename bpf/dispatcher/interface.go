package dispatcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Interface is a network interface on which a dispatcher was found. Its socket was made in the
// interface's network namespace and works from any thread.
type Interface struct {
	index   int
	name    string // when it was found, for messages
	socket  *nl.SocketHandle
	generic bool
}

// attached is the program on an interface.
type attached struct {
	id   ebpf.ProgramID // 0: nothing
	mode uint8          // XDP_ATTACHED_ of include/uapi/linux/if_link.h
}

// Attributes of IFLA_XDP that the netlink package does not name: include/uapi/linux/if_link.h.
const (
	xdpExpectedFD = 8
	nested        = 1 << 15
)

// Find looks for a dispatcher on the interface with this index in the network namespace of the calling
// thread. A nil Interface and a nil error mean that the interface has no program. Errors match ErrOther where
// there is another program, ErrVersion or ErrPermission. The caller closes the Interface.
func Find(ifindex int) (*Interface, error) {
	iface, err := net.InterfaceByIndex(ifindex)
	if err != nil {
		return nil, fmt.Errorf("look up interface %d: %w", ifindex, err)
	}
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	i := &Interface{index: ifindex, name: iface.Name, socket: &nl.SocketHandle{Socket: s}}
	there, err := i.find()
	if err != nil || !there {
		i.Close()
		return nil, err
	}
	return i, nil
}

// find reports whether there is a dispatcher.
func (i *Interface) find() (bool, error) {
	for range tries {
		on, err := i.look()
		if err != nil || on.id == 0 {
			return false, err
		}
		i.generic = on.mode == nl.XDP_ATTACHED_SKB
		p, _, err := open(on.id)
		if !errors.Is(changed(err), errChanged) {
			_ = p.Close()
			return err == nil, i.about(err)
		}
	}
	return false, i.about(ErrBusy)
}

// about puts the interface in front of an error.
func (i *Interface) about(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("libxdp's dispatcher on %s: %w", i.name, err)
}

// Generic reports whether the dispatcher runs in generic mode instead of in the driver.
func (i *Interface) Generic() bool { return i.generic }

// Close closes the socket. A program that joined stays in the dispatcher.
func (i *Interface) Close() {
	if i != nil {
		i.socket.Close()
	}
}

// request is a netlink request about the interface.
func (i *Interface) request(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(i.index)
	req.AddData(msg)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: i.socket}
	return req
}

// look finds the program on the interface.
func (i *Interface) look() (on attached, err error) {
	replies, err := i.request(unix.RTM_GETLINK, 0).Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err == nil && (len(replies) != 1 || len(replies[0]) < unix.SizeofIfInfomsg) {
		err = unix.EBADMSG
	}
	if err != nil {
		return on, fmt.Errorf("ask which program is there: %w", err)
	}
	attrs, err := nl.ParseRouteAttr(replies[0][unix.SizeofIfInfomsg:])
	if err != nil {
		return on, fmt.Errorf("ask which program is there: %w", err)
	}
	for _, a := range attrs {
		if a.Attr.Type&^nested == unix.IFLA_XDP {
			return parseAttached(a.Value)
		}
	}
	return on, nil
}

func parseAttached(value []byte) (on attached, err error) {
	attrs, err := nl.ParseRouteAttr(value)
	if err != nil {
		return on, err
	}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == nl.IFLA_XDP_ATTACHED && len(a.Value) > 0:
			on.mode = a.Value[0]
		case a.Attr.Type == nl.IFLA_XDP_PROG_ID && len(a.Value) >= 4:
			on.id = ebpf.ProgramID(binary.NativeEndian.Uint32(a.Value))
		}
	}
	if on.mode != nl.XDP_ATTACHED_NONE && on.id == 0 {
		return on, fmt.Errorf("%w: there are several, in several modes (look with: ip link show)", ErrOther)
	}
	return on, nil
}

// modeFlags are the flags with which replace exchanges a program, by mode.
var modeFlags = map[uint8]uint32{nl.XDP_ATTACHED_DRV: unix.XDP_FLAGS_DRV_MODE, nl.XDP_ATTACHED_SKB: unix.XDP_FLAGS_SKB_MODE}

// replace puts a program in the place of the dispatcher; nil removes the dispatcher. The error is errChanged
// if the dispatcher is no longer there; otherwise it wraps the kernel's.
func (i *Interface) replace(old *present, p *ebpf.Program) error {
	fd := int32(-1)
	if p != nil {
		fd = int32(p.FD())
	}
	req := i.request(unix.RTM_SETLINK, unix.NLM_F_ACK)
	xdp := nl.NewRtAttr(unix.IFLA_XDP|nested, nil)
	xdp.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(uint32(fd)))
	xdp.AddRtAttr(xdpExpectedFD, nl.Uint32Attr(uint32(old.program.FD())))
	xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(unix.XDP_FLAGS_REPLACE|modeFlags[old.on.mode]))
	req.AddData(xdp)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	switch {
	case errors.Is(err, unix.EEXIST):
		return errChanged
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("exchange the dispatcher: %w (a bpf_link holds it: stop the process that does)", err)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EPERM):
		return fmt.Errorf("exchange the dispatcher: %w", err)
	case err != nil:
		return fmt.Errorf("exchange the dispatcher: %w: %w", ErrRefused, err)
	}
	return nil
}
