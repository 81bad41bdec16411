package hostroute

import (
	"slices"

	"github.com/vishvananda/netlink"
)

// stack returns the interfaces whose packets come through the one with an index: itself, the
// bridge, bond or team that it is a port of, the VLANs and the like over it, and so on upwards.
func stack(index int, links []netlink.Link) map[int]bool {
	on := map[int]bool{index: true}
	for known := 0; known < len(on); {
		known = len(on)
		for _, l := range links {
			a := l.Attrs()
			if on[a.Index] && a.MasterIndex != 0 {
				on[a.MasterIndex] = true
			}
			if isOver(l) && on[a.ParentIndex] {
				on[a.Index] = true
			}
		}
	}
	return on
}

// over are the kinds of interface that receive through another. For these, the parent index names
// the interface below. For a veth it names the peer.
var over = []string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}

// isOver reports whether an interface is stacked on one of the same network namespace.
func isOver(l netlink.Link) bool {
	return l.Attrs().NetNsID < 0 && slices.Contains(over, l.Type())
}
