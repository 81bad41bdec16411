package paths

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the daemon, built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }

// Hosts.
const (
	clients = iota
	relay
	log
	hosts
)

// rig is a host with clients, one with a relay, and one with a log. Each is at both switches.
type rig struct {
	t      *testing.T
	hosts  [hosts]daemon.Place
	paths  [2][hosts]port
	dirs   [hosts]string
	cut    func(path, host int) (mend func()) // makes a network carry nothing of a host
	secret *authority.Authority               // that signs certificates; nil: connections are plain
	proven []int                              // paths whose addresses the certificate of the log has
}

// port is the device of a host at one of the networks.
type port struct{ device, address string }

// switched is a rig whose hosts are namespaces, at two switches.
type switched struct {
	*rig
	ends [2][]*testenv.End // by switch
}

func newRig(t *testing.T) *switched {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	o := testenv.PairOptions{MTU: 4200}
	r := &switched{rig: &rig{t: t}}
	r.ends[0] = testenv.NewSwitch(t, hosts, o)
	r.ends[1] = testenv.SecondSwitch(t, r.ends[0], o)
	for i := range hosts {
		r.hosts[i], r.dirs[i] = r.ends[0][i], t.TempDir()
		for path, ends := range r.ends {
			r.paths[path][i] = port{"roce:" + ends[i].Ifname, ends[i].IP.String()}
		}
	}
	r.cut = r.dropAll
	return r
}

// dropAll makes a switch drop all frames of a host, and returns a function that ends that.
func (r *switched) dropAll(path, host int) (mend func()) {
	r.t.Helper()
	e := r.ends[path][host]
	mend = e.Lose(r.t, testenv.FromEnd, 0)
	e.Lose(r.t, testenv.ToEnd, 0)
	return mend
}

// at returns where the flow of a host is over a path.
func (r *rig) at(path, host int) string { return r.paths[path][host].address + ":7471" }

// device returns the RDMA device of a host at a switch.
func (r *rig) device(path, host int) string { return r.paths[path][host].device }

// issue signs a certificate of a host, and returns the files: certificate, key and authority.
func (r *rig) issue(host int) (files [3]string) {
	r.t.Helper()
	proven := []int{0, 1}
	if host == log {
		proven = r.proven
	}
	certificate, key := r.secret.Issue(r.t, []string{"clients", "relay", "log"}[host], func(c *x509.Certificate) {
		c.IPAddresses = nil
		for _, path := range proven {
			c.IPAddresses = append(c.IPAddresses, net.ParseIP(r.paths[path][host].address))
		}
	})
	return [3]string{certificate, key, r.secret.File()}
}

// head returns the first lines of a configuration.
func (r *rig) head(host int) string {
	r.t.Helper()
	if r.secret == nil {
		return region
	}
	files := r.issue(host)
	return region + fmt.Sprintf("tls: {certificate: %q, key: %q, authority: %q}\n", files[0], files[1], files[2])
}

const region = "region: {size: 64MiB, extents: 16, pages: ordinary}\n"

// log starts a daemon with a log that clients reach over both paths.
func (r *rig) log(method string) *daemon.Daemon {
	r.t.Helper()
	d := daemon.Launch(r.t, program, r.hosts[log], r.dirs[log], r.head(log)+fmt.Sprintf(`flows:
  - name: wal
    from: {rdma: %q, listen: %q, paths: [{rdma: %q, listen: %q}], message: 1KiB, clients: 4, window: 32, method: %s}
    to: {file: %q, acknowledge: written, segment: {size: 16MiB}}
`, r.device(0, log), r.at(0, log), r.device(1, log), r.at(1, log), method, r.file()))
	d.Running(r.t)
	return d
}

// file returns the path of the log.
func (r *rig) file() string { return filepath.Join(r.dirs[log], "wal") }

// relay starts a daemon that relays to the log over both paths, in a path mode.
func (r *rig) relay(mode string) *daemon.Daemon {
	r.t.Helper()
	d := daemon.Launch(r.t, program, r.hosts[relay], r.dirs[relay], r.head(relay)+fmt.Sprintf(`flows:
  - name: relay
    from: {rdma: %q, listen: %q, message: 1KiB, clients: 4, window: 32}
    to: {rdma: %[1]q, queue: 128, peers: [{name: log, address: %[3]q, flow: wal, paths: [{rdma: %[4]q, address: %[5]q}], path_mode: %[6]s}]}
`, r.device(0, relay), r.at(0, relay), r.at(0, log), r.device(1, relay), r.at(1, log), mode))
	d.Running(r.t)
	return d
}

// append starts a client that sends messages with a seed: to the relay, or with paths to the log.
func (r *rig) append(to string, seed, count, rate int, more ...string) *daemon.Client {
	r.t.Helper()
	if r.secret != nil {
		files := r.issue(clients)
		more = append(more, "-tls", strings.Join(files[:], ","))
	}
	return daemon.StartClient(r.t, flowTest, r.hosts[clients], append([]string{"append", "-device", r.device(0, clients), "-ordinary", "-to", to, "-size", "512",
		"-count", fmt.Sprint(count), "-rate", fmt.Sprint(rate), "-seed", fmt.Sprint(seed), "-timeout", "15m"}, more...)...)
}

// verify checks that the log has count messages: those of each session without a gap, and each once.
func (r *rig) verify(count int) {
	r.t.Helper()
	daemon.StartClient(r.t, flowTest, r.hosts[log], "log", "-file", r.file(), "-count", fmt.Sprint(count)).Await(r.t, time.Minute)
}

// paths returns what a daemon says of the paths to its only peer.
func paths(s *status.Daemon) []status.Path {
	if len(s.Flows) == 0 || s.Flows[0].Sends == nil || len(s.Flows[0].Sends.Peers[0].Paths) == 0 {
		return make([]status.Path, 2)
	}
	return s.Flows[0].Sends.Peers[0].Paths
}

// onBoth waits until a daemon sends over both paths.
func (r *rig) onBoth(d *daemon.Daemon) []status.Path {
	r.t.Helper()
	s := d.Until(r.t, "both paths", func(s *status.Daemon) bool {
		return paths(s)[0].State == "connected" && paths(s)[1].State == "connected"
	})
	return paths(&s)
}

// onPath waits until a daemon sends over a path.
func (r *rig) onPath(d *daemon.Daemon, number int) status.Path {
	r.t.Helper()
	s := d.Until(r.t, fmt.Sprint("path ", number), func(s *status.Daemon) bool { return paths(s)[number].State == "connected" })
	return paths(&s)[number]
}
