package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// shared finds what two flows cannot both have.
type shared struct {
	v          *validator
	interfaces *taken[string]
	receivers  map[string]*receiver // by interface
	files      *taken[string]
	devices    *taken[string]
	listens    map[string]string // who has an address, and a port at every address or at some
	users      map[string]user   // by interface
	sources    []named           // devices that are served
}

// user is who has the queues of an interface first.
type user struct {
	path string
	soft bool // RoCE in software
}

func newShared(v *validator) *shared {
	s := &shared{
		v:          v,
		interfaces: newTaken[string](v, "interface"),
		files:      newTaken[string](v, "file"),
		devices:    newTaken[string](v, "device"),
		listens:    map[string]string{},
		users:      map[string]user{},
		receivers:  map[string]*receiver{},
	}
	s.listen("metrics.listen", v.Metrics.Listen, "")
	return s
}

// take takes what the flow at path has, and refuses what another has already.
func (s *shared) take(path string, f *Flow) {
	for i, name := range f.From.All() {
		if f.From.Mirror != "" { // copies are nobody's loss
			break
		}
		at := join(path, "from.interface")
		if f.From.Interfaces != nil {
			at = index(join(path, "from.interfaces"), i)
		}
		s.receive(path, at, name, f)
		s.queues(at, name, false)
	}
	s.interfaces.take(join(path, "to.interface"), f.To.Interface)
	s.queues(join(path, "to.interface"), f.To.Interface, false)
	s.device(join(path, "from.rdma"), f.From.RDMA)
	s.device(join(path, "to.rdma"), f.To.RDMA)
	s.listen(join(path, "from.listen"), f.From.Listen, "")
	s.listen(join(path, "to.listen"), f.To.Listen, otherAddress(f))
	s.files.take(join(path, "to.file"), clean(f.To.File))
	s.devices.take(join(path, "to.device"), clean(f.To.Device))
	for i := range f.To.Namespaces {
		s.namespace(index(join(path, "to.namespaces"), i), &f.To.Namespaces[i])
	}
	for i := range f.To.Subsystems {
		for k := range f.To.Subsystems[i].Namespaces {
			s.namespace(index(join(index(join(path, "to.subsystems"), i), "namespaces"), k), &f.To.Subsystems[i].Namespaces[k])
		}
	}
	if f.Kind() == KindStorageNVMe && !f.To.ReadOnly {
		s.files.take(join(path, "from.file"), clean(f.From.File))
		s.devices.take(join(path, "from.device"), clean(f.From.Device))
	} else if f.From.Device != "" {
		s.sources = append(s.sources, named{key: join(path, "from.device"), text: clean(f.From.Device)})
	}
}

// namespace takes what hosts write.
func (s *shared) namespace(path string, n *Namespace) {
	switch {
	case !n.ReadOnly:
		s.files.take(join(path, "file"), clean(n.File))
		s.devices.take(join(path, "device"), clean(n.Device))
	case n.Device != "":
		s.sources = append(s.sources, named{key: join(path, "device"), text: clean(n.Device)})
	}
}

// device takes the interface of RoCE in software.
func (s *shared) device(path, name string) {
	if iface, is := SoftDevice(name); is {
		s.queues(path, iface, true)
	}
}

// queues refuses an interface that a flow and RoCE in software would share.
func (s *shared) queues(path, iface string, soft bool) {
	if iface == "" || s.v.explained(path) {
		return
	}
	first, ok := s.users[iface]
	switch {
	case !ok:
		s.users[iface] = user{path, soft}
	case first.soft != soft:
		s.v.refuse(path, wrong("give one of them another interface",
			"interface %s is taken already, by %s%s: device roce:%s takes RoCE's UDP port from the interface's queues, with an AF_XDP socket of its own",
			quote(iface), first.path, s.v.inLine(first.path), iface))
	}
}

// otherAddress is what to do about an address that is taken.
func otherAddress(f *Flow) string {
	if f.Kind() == KindStorageNVMe {
		return "give it another address; or, where that flow is to NVMe hosts, have this subsystem among its subsystems"
	}
	return ""
}

// listen refuses an address which another has, or which is part of it.
func (s *shared) listen(path, address, remedy string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.Trim(port, "0") == "" || s.v.explained(path) {
		return
	}
	own, every, some := strings.ToLower(host)+" "+port, "* "+port, "any "+port
	if isEvery(host) {
		own, every = every, some
	}
	for _, where := range []string{own, every} {
		if first, ok := s.listens[where]; ok {
			s.v.refuse(path, wrong(remedy, "address %s is taken already, by %s%s", quote(address), first, s.v.inLine(first)))
			return
		}
	}
	s.listens[own] = path
	s.listens[some] = path
}

// isEvery tells whether the host stands for every address of this one.
func isEvery(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// served refuses to serve what another flow writes. It comes after all flows.
func (s *shared) served() {
	for _, d := range s.sources {
		if writer, ok := s.devices.first[d.text]; ok {
			s.v.refuse(d.key, fmt.Errorf("device %s is written by %s%s: what is served must not change",
				quote(d.text), writer, s.v.inLine(writer)))
		}
	}
}
