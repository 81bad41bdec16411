package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// shared finds resources that two flows use and only one may use.
type shared struct {
	v          *validator
	interfaces *taken[string]
	receivers  map[string]*receiver // by interface
	fanouts    map[string]*receiver // the first flow of each name
	files      *taken[string]
	devices    *taken[string]
	taken      *taken[string]    // channels that flows pass on
	given      *taken[string]    // channels that flows get
	updated    *taken[string]    // states
	listens    map[string]string // flow of each address, and of each port at every or at some address
	users      map[string]user   // by interface
	sources    []named           // devices that flows serve
}

// user is the first flow that uses the queues of an interface.
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
		taken:      newTaken[string](v, "channel"),
		given:      newTaken[string](v, "channel"),
		updated:    newTaken[string](v, "state"),
		listens:    map[string]string{},
		users:      map[string]user{},
		receivers:  map[string]*receiver{},
		fanouts:    map[string]*receiver{},
	}
	s.listen("metrics.listen", v.Metrics.Listen, "")
	s.states()
	return s
}

// take records the resources of the flow at path, and refuses those that another flow has already.
func (s *shared) take(path string, f *Flow) {
	s.fanout(path, f)
	for i, name := range f.From.All() {
		if !f.From.Takes() { // copies take no packets from other flows
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
	s.sharedPaths(path, f)
	s.taken.take(join(path, "from.channel"), f.From.Channel)
	s.given.take(join(path, "to.channel"), f.To.Channel)
	s.updated.take(join(path, "to.state"), f.To.State)
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

// namespace records a namespace that hosts write to.
func (s *shared) namespace(path string, n *Namespace) {
	switch {
	case !n.ReadOnly:
		s.files.take(join(path, "file"), clean(n.File))
		s.devices.take(join(path, "device"), clean(n.Device))
	case n.Device != "":
		s.sources = append(s.sources, named{key: join(path, "device"), text: clean(n.Device)})
	}
}

// device records the interface of a software RoCE device.
func (s *shared) device(path, name string) {
	if iface, is := SoftDevice(name); is {
		s.queues(path, iface, true)
	}
}

// queues refuses an interface that both a flow and software RoCE would use.
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

// otherAddress returns the remedy for an address that is in use.
func otherAddress(f *Flow) string {
	if f.Kind() == KindStorageNVMe {
		return "give it another address; or, where that flow is to NVMe hosts, have this subsystem among its subsystems"
	}
	return ""
}

// listen refuses an address that another flow uses, or that overlaps with one in use.
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

// isEvery reports whether the host stands for every address.
func isEvery(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// served refuses to serve a device that another flow writes. It must run after all flows are
// recorded.
func (s *shared) served() {
	for _, d := range s.sources {
		if writer, ok := s.devices.first[d.text]; ok {
			s.v.refuse(d.key, fmt.Errorf("device %s is written by %s%s: a served device must not change",
				quote(d.text), writer, s.v.inLine(writer)))
		}
	}
}

// receiver is the first of the flows that take packets from one interface.
type receiver struct {
	path string // of the flow
	at   string // of the interface
	flow *Flow
	all  string // path of a flow that leaves no packets to later flows; or empty

	flows, rules int // so far, of the interface
}

// maxBeside is the largest number of flows that take packets from one interface, the number of
// slots of an XDP program. Together they have at most maxRules rules.
const maxBeside = 16

// add counts a flow and its rules. A filter expression counts as one rule.
func (r *receiver) add(v *validator, path, name string, f *Flow) {
	r.flows++
	r.rules += max(1, len(f.From.Rules)) + f.From.joinRules()
	v.check(r.flows <= maxBeside, join(path, "from"), "is number %d of the flows that take packets from %s; at most %d are possible", r.flows, quote(name), maxBeside)
	v.check(r.flows == 1 || r.rules <= maxRules, join(path, "from"), "makes it %d rules for interface %s, an expression counting as one; at most %d are possible", r.rules, quote(name), maxRules)
}

// receive records that a flow takes packets from an interface. It refuses settings that several
// flows on one interface cannot have.
func (s *shared) receive(path, at, name string, f *Flow) {
	if name == "" || s.v.explained(at) {
		return
	}
	first, ok := s.receivers[name]
	if !ok || first.flow == f {
		s.interfaces.take(at, name)
		if !ok {
			one := &receiver{path: path, at: at, flow: f, all: decidesAll(path, f)}
			one.add(s.v, path, name, f)
			s.receivers[name] = one
		}
		return
	}
	first.add(s.v, path, name, f)
	if first.all != "" {
		s.v.refuse(first.all+".from", wrong("give it a filter, or make it the last of them",
			"decides on every packet of %s, so %s%s would get none", quote(name), path, s.v.inLine(path)))
	}
	first.all = decidesAll(path, f)
	for _, one := range []*receiver{first, {path: path, flow: f}} {
		if one.flow.To.Place == PlaceHere {
			s.v.refuse(join(one.path, "to.place"), wrong("say place: copy, or give the flow an interface of its own",
				"interface %s is for several flows: they share the frames in which packets land, and those of the other flows would land in memory of program %s", quote(name), quote(one.flow.To.Attach)))
		}
	}
	for _, one := range []*receiver{first, {path: path, flow: f}} {
		if one.flow.From.Object != (Object{}) && !s.v.explained(join(one.path, "from.filter")) {
			s.v.refuse(join(one.path, "from.filter"), wrong("give an expression or rules",
				"a program of one's own decides on every packet, and interface %s is for several flows", quote(name)))
		}
	}
	for _, key := range []struct {
		name string
		a, b any
	}{
		{"worker", first.flow.Worker, f.Worker},
		{"from.queues", first.flow.From.Queues, f.From.Queues},
		{"from.zero_copy", first.flow.From.ZeroCopy, f.From.ZeroCopy},
		{"from.timestamps", first.flow.From.Timestamps, f.From.Timestamps},
		{"from.promiscuous", first.flow.From.Promiscuous, f.From.Promiscuous},
		{"from.beside", first.flow.From.Beside, f.From.Beside},
		{"from.priority", first.flow.From.Priority, f.From.Priority},
		{"from.busy_poll", first.flow.From.BusyPoll, f.From.BusyPoll},
	} {
		if at := join(path, key.name); !reflect.DeepEqual(key.a, key.b) && !s.v.explained(at) {
			s.v.refuse(at, wrong("say the same in both", "is another than in %s%s, with which the flow shares interface %s",
				first.path, s.v.inLine(first.path), quote(name)))
		}
	}
}

// decidesAll returns the path of a flow that leaves no packets to later flows, or an empty text.
func decidesAll(path string, f *Flow) string {
	if n := len(f.From.Rules); n > 0 && f.From.Rules[n-1].Match == "" || f.From.Wanted() == "" {
		return path
	}
	return ""
}

// resolve replaces the alternative names of a flow's interfaces by their first names, so that later
// checks compare names. It also finds the link type of the flow's packets. No other code looks up
// alternative names of a configuration.
func (v *validator) resolve(f *Flow) {
	v.link = linktype.Ethernet
	if v.FindInterface == nil {
		return
	}
	f.From.Interface = v.found(f, f.From.Interface)
	for i, name := range f.From.Interfaces {
		f.From.Interfaces[i] = v.found(f, name)
	}
	for i := range f.From.Join {
		f.From.Join[i].Interface = v.found(f, f.From.Join[i].Interface)
	}
	f.To.Interface = v.found(f, f.To.Interface)
	devices := []*string{&f.From.RDMA, &f.To.RDMA}
	f.eachPath(func(_ string, p *Path) { devices = append(devices, &p.RDMA) })
	for _, device := range devices {
		if iface, is := SoftDevice(*device); is {
			*device = SoftPrefix + v.found(f, iface)
		}
	}
	if d, ok := v.devices[cmp.Or(f.From.Interface, f.To.Interface)]; ok && d.Known {
		v.link = d.Link
	}
}

// found returns the first name of an interface, or the name itself if the interface does not exist.
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

// links refuses interfaces whose packets do not begin as the flow expects.
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
	devices := map[string]string{"from.rdma": f.From.RDMA, "to.rdma": f.To.RDMA}
	f.eachPath(func(at string, p *Path) { devices[join(at, "rdma")] = p.RDMA })
	for key, device := range devices {
		if iface, is := SoftDevice(device); is && !v.explained(join(path, key)) {
			if d, ok := v.devices[iface]; ok {
				v.checkErr(join(path, key), d.NeedEthernet("RoCE"))
			}
		}
	}
}

// receives returns an error if a flow cannot receive packets of the interface.
func (v *validator) receives(f *Flow, e ends, d netdev.Device) error {
	first, known := v.devices[f.From.All()[0]]
	switch {
	case f.From.Mirror != "" && !f.passive():
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
