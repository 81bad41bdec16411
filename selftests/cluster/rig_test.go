package cluster

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/etcdserver"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the daemon, built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }

// Ports.
const (
	flowPort     = 7481
	registryPort = 2379
)

// rig is some hosts at a switch. The first one has etcd, and the second one the flow that sends.
type rig struct {
	t     *testing.T
	hosts []*testenv.End
	etcd  *etcdserver.Server
	lease time.Duration
	tls   string // of cluster
}

// newRig starts etcd on one of the hosts.
func newRig(t *testing.T, hosts int) *rig {
	t.Helper()
	testenv.Root(t)
	r := &rig{t: t, hosts: testenv.NewSwitch(t, hosts, testenv.PairOptions{}), lease: 2 * time.Second}
	r.etcd = etcdserver.Start(t, etcdserver.Options{At: r.hosts[0], Host: r.hosts[0].IP.String(), Port: registryPort})
	return r
}

// head returns the begin of a configuration of a daemon with this name.
func (r *rig) head(name, more string) string {
	return fmt.Sprintf("region: {size: 32MiB, extents: 0, pages: ordinary}\ncluster: {resolver: etcd, name: %s, endpoints: [%q], lease: %v%s}\n%s", name, r.etcd.URL, r.lease, r.tls, more)
}

// sink starts a daemon that takes messages, and discards them.
func (r *rig) sink(host int, name, tls string) *daemon.Daemon {
	r.t.Helper()
	d := daemon.Launch(r.t, program, r.hosts[host], r.t.TempDir(), r.head(name, tls)+fmt.Sprintf(`flows:
  - name: feed
    from: {rdma: "roce:%s", listen: ":%d", message: 1KiB, clients: 4, window: 64}
    to: {discard: true}
`, r.hosts[host].Ifname, flowPort))
	d.Running(r.t)
	return d
}

// source starts the daemon that sends to the flow feed of a daemon with this name.
func (r *rig) source(name, tls string) *daemon.Daemon {
	r.t.Helper()
	return daemon.Launch(r.t, program, r.hosts[1], r.t.TempDir(), r.head("source", tls)+fmt.Sprintf(`flows:
  - name: feed
    from: {generate: 256, rate: 2000}
    to: {rdma: "roce:%s", queue: 256, peers: [{peer: %s/feed, policy: drop_oldest}]}
`, r.hosts[1].Ifname, name))
}

// at returns where the sink of a host is.
func (r *rig) at(host int) string {
	return net.JoinHostPort(r.hosts[host].IP.String(), fmt.Sprint(flowPort))
}

// peer returns what the source says of its peer.
func peer(s *status.Daemon) *status.Peer {
	if len(s.Flows) == 0 || s.Flows[0].Sends == nil || len(s.Flows[0].Sends.Peers) == 0 {
		return new(status.Peer)
	}
	return &s.Flows[0].Sends.Peers[0]
}

// reaches waits until the source is connected to an address, and messages are acknowledged there. It returns how many.
func (r *rig) reaches(d *daemon.Daemon, address string) uint64 {
	r.t.Helper()
	s := d.Until(r.t, "a connection to "+address, func(s *status.Daemon) bool {
		p := peer(s)
		return p.State == "connected" && p.Address == address
	})
	before := peer(&s).Acknowledged
	s = d.Until(r.t, "acknowledgements from "+address, func(s *status.Daemon) bool { return peer(s).Acknowledged > before+20 })
	return peer(&s).Acknowledged
}

// registered waits until a daemon is registered.
func (r *rig) registered(d *daemon.Daemon) {
	r.t.Helper()
	d.Until(r.t, "the registration", func(s *status.Daemon) bool { return s.Cluster != nil && s.Cluster.Registered && s.Cluster.Up })
}

// says runs a command of the program, and checks that its output has each of some texts.
func says(t *testing.T, d *daemon.Daemon, want []string, args ...string) (failed bool) {
	t.Helper()
	out, err := d.Control(args...)
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("unifiedd %s does not say %q:\n%s", strings.Join(args, " "), text, out)
		}
	}
	return err != nil
}

// secret returns the settings of TLS for a certificate with this name, of a host.
func secret(t *testing.T, ca *authority.Authority, name string, at *testenv.End) string {
	t.Helper()
	cert, key := issue(t, ca, name, at)
	return fmt.Sprintf("{certificate: %s, key: %s, authority: %s}", cert, key, ca.File())
}

func issue(t *testing.T, ca *authority.Authority, name string, at *testenv.End) (cert, key string) {
	t.Helper()
	return ca.Issue(t, name, func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = []string{name}, []net.IP{at.IP.AsSlice()}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	})
}
