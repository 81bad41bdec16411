package config

import (
	"errors"
	"fmt"
	"net/netip"

	"go.yaml.in/yaml/v4"
)

// Join is a multicast group that the host joins.
type Join struct {
	Group     netip.Addr
	Source    netip.Addr // the only sender that is wanted; the zero value: any
	Interface string     // where, such as a VLAN on an interface of the flow; empty: on each of them
	Pos       Pos        // where the join is configured
}

// maxJoins is the largest number of groups of a flow. Each has a socket.
const maxJoins = 256

// QueryRule is the name of the rule with which a flow that takes packets leaves the queries of multicast routers and
// switches to the host, because the kernel answers them.
const QueryRule = "multicast-queries"

// joinRules returns how many rules the joins need.
func (f *From) joinRules() int {
	if f.LeavesQueries() {
		return 1
	}
	return 0
}

// LeavesQueries reports whether the flow has QueryRule in front of its filter. A program of the user's own decides
// on every packet, so it has no rules beside it.
func (f *From) LeavesQueries() bool {
	return len(f.Join) > 0 && f.Takes() && f.Object == (Object{})
}

// readJoin reads a list of groups. An item is an address, or a mapping with a group, a source and an interface.
func readJoin(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) {
		f.From.Join = []Join{}
		d.list(path, n, func(path string, n *yaml.Node) {
			j := Join{Pos: d.at(n)}
			if n.Kind == yaml.MappingNode || n.Kind == yaml.AliasNode && n.Alias.Kind == yaml.MappingNode {
				d.mapping(path, n, fields{
					"group":     set(d, &j.Group, parseIP),
					"source":    set(d, &j.Source, parseIP),
					"interface": set(d, &j.Interface, parseText),
				})
			} else {
				set(d, &j.Group, parseIP)(path, n)
			}
			f.From.Join = append(f.From.Join, j)
		})
	}
}

// joins checks the multicast groups of a flow.
func (v *validator) joins(path string, f *From) {
	all := join(path, "join")
	if f.Join == nil || v.explained(all) {
		return
	}
	v.check(len(f.Join) > 0, all, "no group is listed: name one, or remove the key")
	v.check(len(f.Join) <= maxJoins, all, "%d groups are too many for a flow; at most %d are possible: make several flows of them", len(f.Join), maxJoins)
	if at := join(path, "filter"); f.LeavesQueries() && len(f.Rules) >= maxRules && !v.explained(at) {
		v.refuse(at, wrong("remove a rule", "%d rules are too many beside join, which adds one; at most %d are possible", len(f.Rules), maxRules-1))
	}
	for i := range f.Join {
		v.join(index(all, i), f, i)
	}
}

// join checks one group of a flow.
func (v *validator) join(at string, f *From, i int) {
	j := &f.Join[i]
	group, source, iface := v.first(join(at, "group"), at), join(at, "source"), join(at, "interface")
	switch {
	case v.explained(group):
		return
	case !j.Group.IsValid():
		v.refuse(group, errors.New("the address of a multicast group is needed"))
		return
	case !j.Group.IsMulticast():
		v.refuse(group, wrong("groups are in 224.0.0.0/4 and ff00::/8", "%s is not the address of a multicast group", j.Group))
		return
	}
	if j.Source.IsValid() {
		switch {
		case j.Source.Is4() != j.Group.Is4():
			v.refuse(source, fmt.Errorf("%s and group %s are of different versions of IP", j.Source, j.Group))
		case j.Source.IsMulticast() || j.Source.IsUnspecified():
			v.refuse(source, wrong("name the sender of the feed", "%s is not the address of a sender", j.Source))
		}
	}
	if v.given(iface, j.Interface) {
		v.checkErr(iface, checkInterface(j.Interface))
	}
	for _, other := range f.Join[:i] {
		switch {
		case other.Group != j.Group || other.Interface != j.Interface || v.explained(at):
		case other.Source == j.Source:
			v.refuse(at, wrong("remove it", "group %s is in the list already", j.Group))
		case !other.Source.IsValid() || !j.Source.IsValid():
			v.refuse(at, wrong("remove one of them", "group %s is in the list twice, from any source and from one", j.Group))
		}
	}
}
