package doctor

import (
	"context"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/cluster/etcd"
	"github.com/unifiedd/unifiedd/flows/config"
)

// probeLimit is how long the doctor waits for an endpoint of etcd.
const probeLimit = 3 * time.Second

// apart is by how much the clocks of etcd and of this machine may differ. Leases need no clock, but certificates do.
// What is measured is exact to about a second.
const apart = 3 * time.Second

// addCluster examines the registry of daemons: whether it answers, its clock, and the certificates for it.
func (r *Report) addCluster(n needs) {
	c := &n.Cluster
	if c.Resolver != config.ResolverEtcd {
		return
	}
	checks := []Check{clusterName(n.Config)}
	t := c.TLS
	now := time.Now()
	if t.Authority != "" {
		checks = append(checks, validity("cluster.tls.authority", t.Authority, now))
	}
	if t.Certificate != "" {
		checks = append(checks, validity("cluster.tls.certificate", t.Certificate, now))
	}
	e := etcd.Config{TLS: etcd.Files{Authority: t.Authority, Certificate: t.Certificate, Key: t.Key}, Lease: c.Lease}
	for _, endpoint := range c.Endpoints {
		ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
		h, err := etcd.Probe(ctx, e, endpoint)
		cancel()
		checks = append(checks, judgeEndpoint(endpoint, h, err)...)
	}
	r.add("cluster", checks)
}

func clusterName(c *config.Config) Check {
	const name = "cluster.name"
	own := flows.ClusterName(c)
	if err := cluster.ValidName(own); err != nil {
		return fail(name, "%v", err).with("set cluster.name")
	}
	return ok(name, "others find this daemon as %s", own)
}

// judgeEndpoint judges what an endpoint of etcd has said, or why it has not.
func judgeEndpoint(endpoint string, h etcd.Health, err error) []Check {
	name := "etcd " + endpoint
	switch {
	case err != nil:
		return []Check{fail(name, "does not answer: %v", err).with("start it, or name another endpoint; running flows go on meanwhile")}
	case !h.Leader:
		return []Check{fail(name, "release %s knows no leader: it cannot register anything", h.Version).with("more than half of etcd's members must run: etcdctl endpoint status")}
	}
	checks := []Check{ok(name, "release %s, answered within %v", h.Version, h.Took.Round(100*time.Microsecond))}
	if h.Clock.Abs() > apart {
		checks = append(checks, warn("clock of "+endpoint, "is %v off this machine's: certificates may be refused as not valid yet, or not any more", h.Clock.Round(time.Second)).
			with("run chrony or systemd-timesyncd on both"))
	}
	return checks
}
