package hostroute

import (
	"slices"

	"github.com/vishvananda/netlink"
)

// stack is the interfaces whose packets come by way of the one with an index:
// itself, the bridge, bond or team it is a port of, the VLANs and the like over it,
// and so on upwards.
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

// over are the kinds of interface that receive by way of another. A veth names its
// peer where these name what they lie on.
var over = []string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}

// isOver reports whether an interface lies on one of the same network namespace.
func isOver(l netlink.Link) bool {
	return l.Attrs().NetNsID < 0 && slices.Contains(over, l.Type())
}
