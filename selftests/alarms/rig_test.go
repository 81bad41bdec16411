package alarms

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// rig has what all faults share: two namespaces with a wire for packets and one for RDMA, the traffic, and Prometheus.
type rig struct {
	t     *testing.T
	p     *testenv.Pair // A sends, B has the daemons
	speed int
	prom  *server
	away  *stalls
	at    map[string]string // addresses of the metrics by instance
}

// Ports and names. Each daemon has a port of its own for its metrics.
const (
	firstPort = 9400
	feedPort  = 7481
	wire      = "net" // the interface of RDMA at both ends
)

// regionSize is the size of each daemon's region, in bytes.
const regionSize = 32 << 20

func newRig(t *testing.T, speed int, instances []string) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.HugePages(t, regionSize+8<<20)
	r := &rig{t: t, speed: speed, at: map[string]string{}, p: testenv.NewPair(t, testenv.PairOptions{})}
	r.p.A.Run(t, "ip", "link", "add", wire, "type", "veth", "peer", "name", wire, "netns", r.p.B.Name)
	t.Cleanup(func() { r.p.A.Run(t, "ip", "link", "delete", wire) })
	for i, e := range []*testenv.End{&r.p.A, &r.p.B} {
		e.Run(t, "ip", "address", "add", fmt.Sprintf("10.78.1.%d/24", i+1), "dev", wire)
		e.Run(t, "ip", "link", "set", wire, "up")
	}
	var targets []string
	for i, name := range instances {
		r.at[name] = fmt.Sprintf("127.0.0.1:%d", firstPort+i)
		targets = append(targets, target(name, r.at[name]))
	}
	r.prom = newServer(t, r.p.B.Namespace, speed, targets)
	r.away = watchStalls(t)
	return r
}

// within returns a span of the rules, at the speed of this run, on a machine of this speed.
func (r *rig) within(span time.Duration) time.Duration { return span / time.Duration(r.speed) }

// scene is one daemon that a fault happens to.
type scene struct {
	*rig
	name    string // of the instance
	dir     string
	address string // of the metrics
	text    string // configuration
	d       *daemon.Daemon
}

const head = `
region: {size: %s, extent: 512KiB, extents: 8}
metrics: {listen: %q}
workers: [{name: main, wait: sleep, sleep: %s}]
`

// settings returns the begin of a configuration.
func (s *scene) settings(size, sleep string) string { return fmt.Sprintf(head, size, s.address, sleep) }

// capture returns a configuration of a flow from packets to a disk.
func (s *scene) capture(sleep, from, to string) string {
	return s.settings("32MiB", sleep) + fmt.Sprintf(`flows:
  - name: capture
    from: {interface: %s, filter: "udp and dst port 5000"%s}
    to: {%s}
`, s.p.B.Ifname, from, to)
}

// feed returns a configuration of a flow from generated packets to a peer.
func (s *scene) feed(tls string) string {
	return s.settings("32MiB", "1ms") + tls + fmt.Sprintf(`flows:
  - name: feed
    from: {generate: 256, rate: 200}
    to: {rdma: "roce:%s", queue: 256, peers: [{name: sink, address: "10.78.1.1:%d", flow: feed, policy: drop_oldest}]}
`, wire, feedPort)
}

// sink starts the peer of the feed, which discards what it gets.
func (s *scene) sink(tls string) *daemon.Daemon {
	s.t.Helper()
	d := daemon.Launch(s.t, program, &s.p.A, s.t.TempDir(), fmt.Sprintf(`
region: {size: 16MiB, extents: 0, pages: ordinary}
%sflows:
  - name: feed
    from: {rdma: "roce:%s", listen: "10.78.1.1:%d", message: 1KiB, clients: 2, window: 64}
    to: {discard: true}
`, tls, wire, feedPort))
	d.Running(s.t)
	return d
}

// in returns a scene without a daemon, in a test of its own.
func (r *rig) in(t *testing.T, name string) *scene {
	t.Helper()
	mine, prom := *r, *r.prom
	mine.t, prom.t, mine.prom = t, t, &prom
	s := &scene{rig: &mine, name: name, dir: inMemory(t), address: r.at[name]}
	t.Cleanup(s.leave)
	return s
}

// inMemory makes a directory in memory, where the flight recorder works.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "unifiedd-alarms-")
	testenv.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// launch starts the daemon, waits until its flows run, and has its metrics read.
func (s *scene) launch(text string) {
	s.t.Helper()
	s.text = text
	s.d = daemon.Launch(s.t, program, &s.p.B, s.dir, text)
	s.d.Running(s.t)
	s.prom.await(s.name)
}

// leave ends the scene.
func (s *scene) leave() {
	s.t.Helper()
	if s.d != nil {
		s.d.Kill()
	}
}

// calm fails the test if there is an alert while nothing is wrong, for as long as span. Workers that another program
// kept from their CPUs are not the daemon's fault: the test then waited for its CPU, too.
func (s *scene) calm(span time.Duration) {
	s.t.Helper()
	stalls := s.away.count.Load()
	for end := time.Now().Add(span); ; time.Sleep(s.within(interval)) {
		for name, a := range s.prom.firing(s.name) {
			if name == "UnifieddWorkerStarved" && s.away.count.Load() > stalls {
				continue
			}
			s.t.Errorf("%s: all is well, and there is an alert: %v %v", s.name, a, a.Labels)
		}
		if s.t.Failed() {
			s.t.Fatalf("the daemon's log:\n%s", s.d.Log)
		}
		if time.Now().After(end) {
			return
		}
	}
}

// say runs a command of the program in the daemon's namespace, and returns what it prints.
func (s *scene) say(args ...string) string {
	out, _ := s.p.B.Command(program, args...).CombinedOutput() // what it says is checked
	return string(out)
}

// status is what `unifiedd status` says.
func (s *scene) status() string {
	return s.say("status", "-o", "wide", "--socket", filepath.Join(s.dir, "control.sock"))
}

// doctor is what `unifiedd doctor` says of the configuration.
func (s *scene) doctor() string { return s.say("doctor", "-c", filepath.Join(s.dir, "unifiedd.yaml")) }

// traffic sends packets to the capture, rate a second in bursts, until halt is called.
func (s *scene) traffic(rate float64) (halt func()) {
	s.t.Helper()
	raw := testenv.NewSender(s.t, &s.p.A)
	frame := testenv.UDP(&s.p.A, &s.p.B, 5000, 1, 700)
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		begin, sent := time.Now(), 0.0
		for {
			for due := min(time.Since(begin).Seconds()*rate, sent+rate/2); sent < due; sent++ {
				if _, err := raw.Send(frame); err != nil {
					break // the link is down, which is one of the faults
				}
			}
			sent = max(sent, time.Since(begin).Seconds()*rate-rate/2)
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	halt = sync.OnceFunc(func() { close(stop); sending.Wait() })
	s.t.Cleanup(halt)
	return halt
}

// flowing waits until the flow has written some packets.
func (s *scene) flowing() {
	s.t.Helper()
	s.d.Until(s.t, "packets on the disk", func(d *status.Daemon) bool { return d.Flows[0].Written.Packets > 20 })
}

// repeat calls f until stop is called.
func (s *scene) repeat(f func()) (stop func()) {
	quit := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
				f()
			}
		}
	})
	stop = sync.OnceFunc(func() { close(quit); running.Wait() })
	s.t.Cleanup(stop)
	return stop
}

// stalls counts times for which a thread that only sleeps did not get a CPU.
type stalls struct{ count atomic.Int64 }

// watchStalls counts until the end of the test.
func watchStalls(t *testing.T) *stalls {
	t.Helper()
	s := new(stalls)
	quit := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for last := time.Now(); ; {
			select {
			case <-quit:
				return
			default:
			}
			time.Sleep(time.Millisecond)
			now := time.Now()
			if now.Sub(last) > 15*time.Millisecond {
				s.count.Add(1)
			}
			last = now
		}
	})
	t.Cleanup(func() { close(quit); watching.Wait() })
	return s
}
