package flows

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// openNames makes what says where named peers are. With etcd, its engine fills it.
func (d *Daemon) openNames() {
	if d.config.Cluster.Resolver == "" {
		return
	}
	d.found = new(cluster.Names)
	d.useNames(d.config)
}

// useNames tells where peers are, as a configuration says.
func (d *Daemon) useNames(c *config.Config) {
	if d.found != nil {
		d.found.SetStatic(c.Cluster.Static(), c.Cluster.Resolver == config.ResolverStatic)
	}
}

// Names is what finds named peers; nil: there is no resolver. An engine for config.ResolverEtcd fills it.
func (d *Daemon) Names() *cluster.Names { return d.found }

// ClusterName returns the name under which a daemon of a configuration registers: that of its host, unless it says
// another one.
func ClusterName(c *config.Config) string {
	if c.Cluster.Name != "" {
		return c.Cluster.Name
	}
	host, _ := os.Hostname() // without a name the registration says so
	return strings.ToLower(host)
}

// Record returns what the daemon registers of itself: flows that run and take connections, and states that peers may
// read, with their addresses, and its RDMA devices. Any goroutine may call it.
func (d *Daemon) Record() cluster.Record {
	r := cluster.Record{Name: ClusterName(d.Config()), Version: d.options.Version}
	if d.secret != nil {
		r.Capabilities = append(r.Capabilities, "tls")
	}
	devices, lacks := d.devices.Addresses(), map[string]string{}
	var unread map[string]string
	r.States, unread = d.registeredStates(devices)
	for _, f := range d.Flows() {
		switch one, why := f.registration(devices); {
		case why != "":
			lacks[f.Name()] = why
		case one != nil && len(r.Flows) == cluster.MaxFlows:
			lacks[f.Name()] = fmt.Sprintf("%d flows are registered already, and more are not possible", cluster.MaxFlows)
		case one != nil:
			r.Flows = append(r.Flows, *one)
		}
	}
	d.unfound.Store(&unfound{lacks, unread})
	r.Devices = sortedDevices(devices)
	return r
}

// unfound are flows and states that the last record could not have, and why, by name.
type unfound struct{ flows, states map[string]string }

// registeredStates returns what others need to read the states that they may, and why others cannot find some.
func (d *Daemon) registeredStates(devices map[string][]netip.Addr) (all []cluster.Flow, lacks map[string]string) {
	lacks = map[string]string{}
	states := d.Config().Attach.States
	for i := range states {
		c := &states[i]
		server := d.states.servers[c.Name]
		if server == nil {
			continue
		}
		addresses, why := reachable(c.Remote.Listen, devices[c.Remote.RDMA])
		if err := server.Stats().Err; err != nil {
			why = err.Error()
		}
		if why != "" {
			lacks[c.Name] = why
			continue
		}
		all = append(all, cluster.Flow{Name: c.Name, Kind: c.Has(), Device: c.Remote.RDMA, Addresses: addresses})
	}
	return all, lacks
}

func sortedDevices(devices map[string][]netip.Addr) (all []cluster.Device) {
	for name, addresses := range devices {
		one := cluster.Device{Name: name}
		for _, a := range addresses[:min(len(addresses), cluster.MaxGIDs)] {
			one.GIDs = append(one.GIDs, a.String())
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b cluster.Device) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// registration returns what others need to connect to the flow; nil: it takes no connections, or does not run. why
// says why it cannot be registered.
func (f *Flow) registration(devices map[string][]netip.Addr) (one *cluster.Flow, why string) {
	c := f.settings()
	listen, device := c.From.Listen, c.From.RDMA
	if listen == "" {
		listen, device = c.To.Listen, c.To.RDMA
	}
	g := c.To.Replicas
	if listen == "" && g == nil || c.To.Subsystem != "" || f.running() == nil {
		return nil, "" // hosts of NVMe have names of their own
	}
	one = &cluster.Flow{Name: c.Name, Kind: string(c.Kind()), Device: device, Addresses: []string{}}
	if listen != "" {
		if one.Addresses, why = reachable(listen, devices[device]); why != "" {
			return nil, why
		}
	}
	if g != nil {
		one.Group, why = reachable(g.ListensAt(), devices[device])
		if i := g.Own(); why != "" && i >= 0 && g.Members[i].Peer != "" { // the others look for it here
			return nil, "as a member of its group: " + why
		}
	}
	if len(one.Addresses)+len(one.Group) == 0 {
		return nil, ""
	}
	return one, ""
}

// lookUpLimit is how long the look-up of the host in a flow's own address may take.
const lookUpLimit = time.Second

// reachable returns the addresses at which others reach a listener. One at every address is reached at those of its
// RDMA device.
func reachable(listen string, device []netip.Addr) (all []string, why string) {
	host, port, err := net.SplitHostPort(listen)
	switch {
	case err != nil:
		return nil, err.Error()
	case port == "0":
		return nil, "its port is not fixed: name one in listen"
	}
	at, err := netip.ParseAddr(host)
	switch {
	case host == "":
	case err == nil && !at.IsUnspecified():
		device = []netip.Addr{at}
	case err == nil && at.Is4():
		device = slices.DeleteFunc(slices.Clone(device), func(a netip.Addr) bool { return !a.Is4() })
	case err != nil:
		ctx, cancel := context.WithTimeout(context.Background(), lookUpLimit)
		defer cancel()
		if device, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err.Error()
		}
	}
	for _, a := range device {
		if text := net.JoinHostPort(a.Unmap().WithZone("").String(), port); cluster.Reachable(a.WithZone("")) && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	if all == nil {
		return nil, "it listens where no other host reaches it: name an address in listen, or give one to the RDMA device"
	}
	return all[:min(len(all), cluster.MaxAddresses)], ""
}

// clusterStatus describes how peers are found; nil: there is no resolver.
func (d *Daemon) clusterStatus() *status.Cluster {
	if d.found == nil {
		return nil
	}
	c := &d.Config().Cluster
	state, names, refused := d.found.Status()
	s := &status.Cluster{Resolver: string(c.Resolver), Endpoints: c.Endpoints, Prefix: c.Prefix, Lease: c.Lease, Up: state.Up, Since: state.Since,
		Registered: state.Registered, Taken: state.Taken, Error: cmp.Or(state.Error, state.Lacks), Counts: state.Counts, Refused: map[string]uint64{}, Answered: instant(state.Answered)}
	for _, reason := range cluster.Reasons {
		s.Refused[string(reason)] = refused[reason]
	}
	if c.Resolver == config.ResolverEtcd {
		s.Name = ClusterName(d.Config())
		if lacks := d.unfound.Load(); lacks != nil {
			s.Unregistered, s.UnregisteredStates = lacks.flows, lacks.states
		}
	}
	for i := range names {
		s.Names = append(s.Names, nameStatus(&names[i]))
	}
	return s
}

// instant returns a time as it is in the status; nil: there was none.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func nameStatus(n *cluster.Name) status.ClusterName {
	s := status.ClusterName{Name: n.Name, State: status.NameRegistered, Version: n.Version, Found: instant(n.Found), Gone: instant(n.Gone), Refused: n.Refused, Flows: FlowsOf(n.Flows)}
	switch {
	case n.Refused != "":
		s.State = status.NameRefused
	case !n.Gone.IsZero() && !n.Found.IsZero():
		s.State = status.NameGone
	case n.Found.IsZero():
		s.State = status.NameUnknown
	}
	return s
}

// FlowsOf returns the flows, or the states, of a record as the status has them.
func FlowsOf(all []cluster.Flow) (shown []status.ClusterFlow) {
	for _, f := range all {
		shown = append(shown, status.ClusterFlow{Name: f.Name, Kind: f.Kind, Device: f.Device, Addresses: f.Addresses, Group: f.Group})
	}
	return shown
}
