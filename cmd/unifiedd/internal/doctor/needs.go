package doctor

import (
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/config"
)

// needs has the requirements of the configuration on the machine.
type needs struct {
	*config.Config
	given      bool     // the configuration is the user's, not the default one
	named      []string // interfaces the user named
	interfaces []string // all to check
	disks      []string // all to check
	starter    string   // user who starts the daemon and may not reserve huge pages; empty: root
	taken      map[string]string
}

func newNeeds(o Options) needs {
	n := needs{Config: o.Config, given: o.Config != nil, named: o.Interfaces, disks: slices.Clone(o.Disks), taken: o.Taken}
	if !n.given {
		n.Config = config.Default()
	}
	n.interfaces = slices.Clone(o.Interfaces)
	for _, f := range n.Flows {
		if len(o.Interfaces) == 0 && f.From.Takes() { // copies need nothing of the card
			n.interfaces = append(n.interfaces, f.From.All()...)
		}
		if len(o.Interfaces) == 0 && f.To.Interface != "" {
			n.interfaces = append(n.interfaces, f.To.Interface)
		}
		n.disks = append(n.disks, target(f.To))
	}
	if len(n.interfaces) == 0 && !n.given { // flows need not have one
		n.interfaces = allInterfaces()
	}
	n.interfaces, n.disks = unique(n.interfaces), unique(n.disks)
	if n.starter = unitUser(o.File); n.starter == "" && os.Geteuid() != 0 {
		n.starter = strconv.Itoa(os.Geteuid())
	}
	return n
}

// target returns the path that a flow writes to.
func target(t config.To) string {
	if t.Device != "" {
		return t.Device
	}
	return t.File
}

// allInterfaces lists the interfaces of the network namespace except loopback. After an error the
// list is empty; the AF_XDP check reports it.
func allInterfaces() []string {
	links, err := netlink.LinkList()
	if err != nil {
		return nil
	}
	var names []string
	for _, l := range links {
		if l.Attrs().EncapType != "loopback" {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

// unique removes repetitions and empty names, and keeps the order.
func unique(all []string) []string {
	var out []string
	for _, s := range all {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// bad returns the state of a missing feature that only a configuration makes necessary.
func (n needs) bad() State {
	if n.given {
		return Fail
	}
	return Warn
}

// flowOn returns the flow that has the interface.
func (n needs) flowOn(iface string) (config.Flow, bool) {
	i := slices.IndexFunc(n.Flows, func(f config.Flow) bool { return f.From.Takes() && slices.Contains(f.From.All(), iface) })
	if i < 0 {
		return config.Flow{}, false
	}
	return n.Flows[i], true
}

// flowTo returns the flow that writes to the path.
func (n needs) flowTo(path string) (config.Flow, bool) {
	i := slices.IndexFunc(n.Flows, func(f config.Flow) bool { return target(f.To) == path })
	if i < 0 {
		return config.Flow{}, false
	}
	return n.Flows[i], true
}

// wants reports whether the user asked for the interface, by name or in a flow.
func (n needs) wants(iface string) bool {
	_, flow := n.flowOn(iface)
	return flow || slices.Contains(n.named, iface)
}

// registrations returns how often devices charge the region to the user: once for the AF_XDP
// sockets and once for the io_uring of each flow.
func (n needs) registrations() uint64 { return 2 * uint64(max(1, len(n.Flows))) }
