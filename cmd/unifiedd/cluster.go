package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/cluster/etcd"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// etcdConfig returns the settings of etcd in a configuration.
func etcdConfig(c *config.Config) etcd.Config {
	t := c.Cluster.TLS
	return etcd.Config{
		Endpoints: c.Cluster.Endpoints, TLS: etcd.Files{Authority: t.Authority, Certificate: t.Certificate, Key: t.Key},
		Prefix: c.Cluster.Prefix, Name: flows.ClusterName(c), Lease: c.Cluster.Lease,
	}
}

// joinCluster registers the daemon and finds the peers that its flows name, if its configuration says so, until end is
// called. It does not wait for etcd.
func joinCluster(d *flows.Daemon, r *control.Reloader) (end func() error, err error) {
	switch c := d.Config(); c.Cluster.Resolver {
	case config.ResolverEtcd:
		e := etcdConfig(c)
		if err := cluster.ValidName(e.Name); err != nil {
			return nil, fmt.Errorf("%w (set cluster.name)", err)
		}
		e.Record, e.Names, e.Log = d.Record, d.Names(), r.Log
		k, err := etcd.Open(e)
		if err != nil {
			return nil, err
		}
		r.Registry = func(ctx context.Context) status.Registry { return registered(ctx, d, k) }
		return k.Close, nil
	case config.ResolverStatic:
		r.Registry = func(context.Context) status.Registry { return configured(d) }
	}
	return func() error { return nil }, nil
}

// listLimit is how long reading all daemons may take.
const listLimit = 5 * time.Second

// registered lists the daemons that are registered in etcd.
func registered(ctx context.Context, d *flows.Daemon, k *etcd.Client) status.Registry {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	r := status.Registry{Cluster: d.Status().Cluster, Daemons: []status.RegistryDaemon{}}
	all, err := k.List(ctx)
	if err != nil {
		r.Error = err.Error()
	}
	for _, one := range all {
		shown := status.RegistryDaemon{Name: one.Name}
		if one.Refused != nil {
			shown.Refused = one.Refused.Error()
		} else {
			shown.Version, shown.Instance, shown.Capabilities = one.Record.Version, one.Record.Instance, one.Record.Capabilities
			shown.Flows, shown.States = flows.FlowsOf(one.Record.Flows), flows.FlowsOf(one.Record.States)
			for _, device := range one.Record.Devices {
				shown.Devices = append(shown.Devices, status.ClusterDevice{Name: device.Name, GIDs: device.GIDs})
			}
		}
		r.Daemons = append(r.Daemons, shown)
	}
	return r
}

// configured lists the peers of the configuration, by daemon.
func configured(d *flows.Daemon) status.Registry {
	r := status.Registry{Cluster: d.Status().Cluster, Daemons: []status.RegistryDaemon{}}
	for _, p := range d.Config().Cluster.Peers {
		name, flow, _ := strings.Cut(p.Peer, "/")
		i := slices.IndexFunc(r.Daemons, func(one status.RegistryDaemon) bool { return one.Name == name })
		if i < 0 {
			i = len(r.Daemons)
			r.Daemons = append(r.Daemons, status.RegistryDaemon{Name: name})
		}
		one := status.ClusterFlow{Name: flow, Addresses: []string{}}
		if p.Address != "" {
			one.Addresses = append(one.Addresses, p.Address)
		}
		if p.Group != "" {
			one.Group = append(one.Group, p.Group)
		}
		r.Daemons[i].Flows = append(r.Daemons[i].Flows, one)
	}
	return r
}

func newCluster() *cobra.Command {
	c := &cobra.Command{
		Use: "cluster", Short: "Look at the daemons that find one another by their names",
		Long: `Look at the daemons that find one another by their names.

A flow names a peer as NAME/FLOW, and the resolver of the configuration says where that is.
Programs name flows so, too, and states as NAME/STATE.`,
	}
	c.AddCommand(newClusterStatus())
	return c
}

func newClusterStatus() *cobra.Command {
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use: "status", Short: "Print all daemons that are registered, with their flows, states and addresses",
		Long: `Print whether the registry answers, and all daemons that are registered, with their flows, the
states that peers may read, and addresses. The running daemon is asked, which has the credentials for the registry.

The exit status is 1 if the registry does not answer, or if the daemon is not registered.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), 2*listLimit)
			defer cancel()
			raw, err := control.Registry(ctx, socket)
			if err != nil {
				return err
			}
			var r status.Registry
			if err := decode(raw, &r); err != nil || r.Cluster == nil {
				return fmt.Errorf("the daemon's answer is not valid: %w (is it of another version?)", cmp.Or(err, errors.New("it says nothing of a cluster")))
			}
			if asJSON {
				_, err = c.OutOrStdout().Write(raw)
			} else {
				err = printRegistry(c.OutOrStdout(), &r)
			}
			return cmp.Or(err, missing(&r))
		},
	}
	addSocket(c, &socket)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// missing returns an error if the registry does not answer, or does not have the daemon.
func missing(r *status.Registry) error {
	switch s := r.Cluster; {
	case !s.Up || r.Error != "":
		return fmt.Errorf("the registry does not answer: %s", cmp.Or(r.Error, s.Error, "not yet"))
	case s.Resolver == string(config.ResolverEtcd) && !s.Registered:
		return fmt.Errorf("the daemon is not registered: %s", cmp.Or(s.Error, "not yet"))
	}
	return nil
}

// printRegistry prints a line for each flow and each state of each daemon.
func printRegistry(w io.Writer, r *status.Registry) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	printCluster(t, r.Cluster)
	fmt.Fprintf(t, "\nDAEMON\tVERSION\tFLOW OR STATE\tKIND\tDEVICE\tADDRESSES\n")
	for _, d := range r.Daemons {
		switch {
		case d.Refused != "":
			fmt.Fprintf(t, "%s\trefused: %s\n", d.Name, d.Refused)
		case len(d.Flows)+len(d.States) == 0:
			fmt.Fprintf(t, "%s\t%s\t-\n", d.Name, d.Version)
		}
		for _, f := range d.Flows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, cmp.Or(d.Version, "-"), f.Name, cmp.Or(f.Kind, "-"), cmp.Or(f.Device, "-"), flowAddresses(f))
		}
		for _, s := range d.States {
			fmt.Fprintf(t, "%s\t%s\t%s\tstate of %s\t%s\t%s\n", d.Name, cmp.Or(d.Version, "-"), s.Name, cmp.Or(s.Kind, "-"), cmp.Or(s.Device, "-"), strings.Join(s.Addresses, ", "))
		}
	}
	return t.Flush()
}

// flowAddresses returns where a flow takes connections, and where it talks with the other members of its group.
func flowAddresses(f status.ClusterFlow) string {
	all := slices.Clone(f.Addresses)
	if len(f.Group) > 0 {
		all = append(all, "group at "+strings.Join(f.Group, ", "))
	}
	return strings.Join(all, ", ")
}

// printNamed prints how a peer was found, if that is by its name.
func printNamed(w io.Writer, p *status.Peer) {
	if p.Named != "" {
		fmt.Fprintf(w, "  \tfound as %s; followed to another address %d times\n", p.Named, p.Followed)
	}
}

// printCluster prints how peers are found, and those names that are not registered.
func printCluster(w io.Writer, c *status.Cluster) {
	if c == nil {
		return
	}
	switch {
	case c.Resolver != string(config.ResolverEtcd):
		fmt.Fprintf(w, "cluster\tpeers are where the configuration says (%s)\n", c.Resolver)
	case !c.Up:
		fmt.Fprintf(w, "cluster\tetcd does not answer since %s: %s. Flows go on, and peers stay where they were found (%s)\n",
			c.Since.Format(time.RFC3339), cmp.Or(c.Error, "not yet"), strings.Join(c.Endpoints, ", "))
	case c.Registered:
		fmt.Fprintf(w, "cluster\tregistered as %s in etcd, with a lease of %v\n", c.Name, c.Lease)
	default:
		fmt.Fprintf(w, "cluster\tnot registered as %s: %s\n", c.Name, cmp.Or(c.Error, "not yet"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Unregistered)) {
		fmt.Fprintf(w, "  flow %s\tothers do not find it: %s\n", name, c.Unregistered[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.UnregisteredStates)) {
		fmt.Fprintf(w, "  state %s\tothers do not find it: %s\n", name, c.UnregisteredStates[name])
	}
	for _, n := range c.Names {
		switch n.State {
		case status.NameGone:
			fmt.Fprintf(w, "  peer %s\tnot registered since %s: flows use its last addresses\n", n.Name, when(n.Gone))
		case status.NameUnknown:
			fmt.Fprintf(w, "  peer %s\tno daemon is registered under this name\n", n.Name)
		case status.NameRefused:
			fmt.Fprintf(w, "  peer %s\tits record is refused, %s\n", n.Name, n.Refused)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Refused)) {
		if n := c.Refused[reason]; n > 0 {
			fmt.Fprintf(w, "  refused\t%s with the reason %s\n", plural(int(n), "record"), reason)
		}
	}
}
