package config

import (
	"cmp"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// resolve gives each interface of a flow that there is its first name, so that what follows compares names, and notes what the flow's
// packets begin with. It is the one place where alternative names of a configuration are looked up.
func (v *validator) resolve(f *Flow) {
	v.link = linktype.Ethernet
	if v.FindInterface == nil {
		return
	}
	f.From.Interface = v.found(f, f.From.Interface)
	for i, name := range f.From.Interfaces {
		f.From.Interfaces[i] = v.found(f, name)
	}
	f.To.Interface = v.found(f, f.To.Interface)
	for _, device := range []*string{&f.From.RDMA, &f.To.RDMA} {
		if iface, is := SoftDevice(*device); is {
			*device = SoftPrefix + v.found(f, iface)
		}
	}
	if d, ok := v.devices[cmp.Or(f.From.Interface, f.To.Interface)]; ok && d.Known {
		v.link = d.Link
	}
}

// found is the first name of an interface, or the name itself where there is none.
func (v *validator) found(f *Flow, name string) string {
	if name == "" || checkInterface(name) != nil {
		return name
	}
	d, err := v.FindInterface(name)
	if err != nil {
		return name
	}
	v.devices[d.Name] = d
	if d.Name != name {
		if f.Named == nil {
			f.Named = map[string]string{}
		}
		f.Named[d.Name] = name
	}
	return d.Name
}

// links refuses interfaces whose packets do not begin with what the flow expects of them.
func (v *validator) links(path string, f *Flow, e ends) {
	for i, name := range f.From.All() {
		at := join(path, "from.interface")
		if f.From.Interfaces != nil {
			at = v.first(join(index(join(path, "from.interfaces"), i), "name"), index(join(path, "from.interfaces"), i))
		}
		if d, ok := v.devices[name]; ok && e.from == network && !v.explained(at) {
			v.checkErr(at, v.receives(f, e, d))
		}
	}
	if d, ok := v.devices[f.To.Interface]; ok && e.kind() == KindStorageNetwork && !v.explained(join(path, "to.interface")) {
		v.checkErr(join(path, "to.interface"), d.Sends())
	}
	for key, device := range map[string]string{"from.rdma": f.From.RDMA, "to.rdma": f.To.RDMA} {
		if iface, is := SoftDevice(device); is && !v.explained(join(path, key)) {
			if d, ok := v.devices[iface]; ok {
				v.checkErr(join(path, key), d.NeedEthernet("RoCE"))
			}
		}
	}
}

// receives says what keeps a flow from taking packets of an interface.
func (v *validator) receives(f *Flow, e ends, d netdev.Device) error {
	first, known := v.devices[f.From.All()[0]]
	switch {
	case f.From.Mirror != "":
		return d.NeedEthernet("mirror")
	case f.From.Steer != "":
		return d.NeedEthernet("steer")
	case e.kind() == KindNetworkRDMA:
		return d.NeedEthernet("a flow to RDMA")
	case known && first.Known && d.Known && first.Link != d.Link:
		return wrong("make flows of them", "packets of %s are %v, and those of %s are %v: a capture has one link type", first.Name, first.Link, d.Name, d.Link)
	}
	return d.Unknown()
}
