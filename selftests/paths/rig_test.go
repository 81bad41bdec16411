package paths

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
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
	t    *testing.T
	ends [2][]*testenv.End // by switch
	dirs [hosts]string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	o := testenv.PairOptions{MTU: 4200}
	r := &rig{t: t}
	r.ends[0] = testenv.NewSwitch(t, hosts, o)
	r.ends[1] = testenv.SecondSwitch(t, r.ends[0], o)
	for i := range r.dirs {
		r.dirs[i] = t.TempDir()
	}
	return r
}

// at returns where the flow of a host is over a path.
func (r *rig) at(path, host int) string { return fmt.Sprintf("%s:7471", r.ends[path][host].IP) }

// device returns the RDMA device of a host at a switch.
func (r *rig) device(path, host int) string { return "roce:" + r.ends[path][host].Ifname }

const region = "region: {size: 64MiB, extents: 16, pages: ordinary}\n"

// log starts a daemon with a log that clients reach over both paths.
func (r *rig) log(method string) *daemon.Daemon {
	r.t.Helper()
	d := daemon.Launch(r.t, program, r.ends[0][log], r.dirs[log], region+fmt.Sprintf(`flows:
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
	d := daemon.Launch(r.t, program, r.ends[0][relay], r.dirs[relay], region+fmt.Sprintf(`flows:
  - name: relay
    from: {rdma: %q, listen: %q, message: 1KiB, clients: 4, window: 32}
    to: {rdma: %[1]q, queue: 128, peers: [{name: log, address: %[3]q, flow: wal, paths: [{rdma: %[4]q, address: %[5]q}], path_mode: %[6]s}]}
`, r.device(0, relay), r.at(0, relay), r.at(0, log), r.device(1, relay), r.at(1, log), mode))
	d.Running(r.t)
	return d
}

// cut makes a switch drop all frames of a host, and returns a function that ends that.
func (r *rig) cut(path, host int) (mend func()) {
	r.t.Helper()
	e := r.ends[path][host]
	mend = e.Lose(r.t, testenv.FromEnd, 0)
	e.Lose(r.t, testenv.ToEnd, 0)
	return mend
}

// append starts a client that sends messages with a seed: to the relay, or with paths to the log.
func (r *rig) append(to string, seed, count, rate int, more ...string) *daemon.Client {
	r.t.Helper()
	return daemon.StartClient(r.t, flowTest, r.ends[0][clients], append([]string{"append", "-device", r.device(0, clients), "-ordinary", "-to", to, "-size", "512",
		"-count", fmt.Sprint(count), "-rate", fmt.Sprint(rate), "-seed", fmt.Sprint(seed), "-timeout", "15m"}, more...)...)
}

// verify checks that the log has count messages: those of each session without a gap, and each once.
func (r *rig) verify(count int) {
	r.t.Helper()
	daemon.StartClient(r.t, flowTest, r.ends[0][log], "log", "-file", r.file(), "-count", fmt.Sprint(count)).Await(r.t, time.Minute)
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
