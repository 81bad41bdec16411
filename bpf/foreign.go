package bpf

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
)

// occupied names the program on the interface.
func occupied(iface *net.Interface) error {
	xdp, err := attached(iface.Index)
	if err != nil {
		return fmt.Errorf("%w to %s, and asking which: %w", ErrOccupied, iface.Name, err)
	}
	if xdp == nil {
		return fmt.Errorf("%w to an interface above or below %s (look with: ip link show)", ErrOccupied, iface.Name)
	}
	e := &ForeignError{Interface: iface.Name, ID: xdp.ProgId, Mode: attachedMode(xdp.AttachMode)}
	e.Name = programName(e.ID)
	e.LinkID = holder(iface.Index, e.ID)
	e.Dispatcher = dispatcher.Is(e.ID)
	return e
}

// attached returns what is on the interface, or nil.
func attached(ifindex int) (*netlink.LinkXdp, error) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil, err
	}
	if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
		return xdp, nil
	}
	return nil, nil
}

func attachedMode(mode uint32) Mode {
	switch mode {
	case nl.XDP_ATTACHED_DRV:
		return Driver
	case nl.XDP_ATTACHED_SKB:
		return Generic
	}
	return Any
}

// programName returns the name of a program, or "" when the kernel does not
// tell, which needs CAP_SYS_ADMIN or more.
func programName(id uint32) string {
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// holder returns the id of the bpf_link that holds the program on the
// interface, or 0 when none does or the kernel does not tell.
func holder(ifindex int, program uint32) uint32 {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || info.XDP() == nil {
			continue
		}
		if info.XDP().Ifindex == uint32(ifindex) && uint32(info.Program) == program {
			return uint32(info.ID)
		}
	}
	return 0
}
