package netdev

import (
	"strings"

	"github.com/vishvananda/netlink"
)

// Stack has the interfaces that an interface is made of.
type Stack struct {
	Below []string // those that carry its packets: the slaves of a bond, the parent of a macvlan
	Mode  string   // of a bond; else empty
	Bond  bool
}

// StackOf returns what an interface is made of. links are all interfaces of its network namespace; a parent in
// another one is not found.
func StackOf(link netlink.Link, links []netlink.Link) Stack {
	var s Stack
	if bond, is := link.(*netlink.Bond); is {
		s.Bond, s.Mode = true, bond.Mode.String()
	}
	a := link.Attrs()
	for _, l := range links {
		if o := l.Attrs(); o.MasterIndex == a.Index || hasParent(link.Type()) && a.NetNsID < 0 && o.Index == a.ParentIndex {
			s.Below = append(s.Below, o.Name)
		}
	}
	return s
}

// hasParent reports whether an interface of a kind sends by another one, its parent. That of a veth is its peer.
func hasParent(kind string) bool {
	return kind == "macvlan" || kind == "macvtap" || kind == "ipvlan" || kind == "ipvtap" || kind == "vlan"
}

// Names lists the interfaces below for a sentence: "eth0, eth1". It is empty if there are none.
func (s Stack) Names() string { return strings.Join(s.Below, ", ") }
