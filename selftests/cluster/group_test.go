package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/etcdserver"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// Places of a group's hosts in the rig, after those of etcd and of the client.
const (
	groupHosts = 2 // of the first member
	groupSize  = 3
	groupPort  = 7491
)

// named is a group whose members are named by their daemons and flows, and not by addresses.
type named struct {
	*rig
	ca   *authority.Authority
	dirs []string // of the members
	at   []int    // host of each member
	now  []*daemon.Daemon
}

// store returns the name of a member's daemon.
func store(i int) string { return fmt.Sprintf("store-%c", 'a'+i) }

// newNamed starts a group of three, and leaves two more hosts for members that move.
func newNamed(t *testing.T) *named {
	t.Helper()
	g := &named{rig: newRig(t, groupHosts+groupSize+2), ca: authority.New(t), at: []int{2, 3, 4}, now: make([]*daemon.Daemon, groupSize)}
	g.etcd.Kill()
	cert, key := issue(t, g.ca, "etcd", g.hosts[0])
	g.etcd = etcdserver.Start(t, etcdserver.Options{At: g.hosts[0], Host: g.hosts[0].IP.String(), Port: registryPort + 10, Certificate: cert, Key: key, Authority: g.ca.File()})
	for i := range groupSize {
		g.dirs = append(g.dirs, testenv.DiskDir(t))
		g.start(i, g.at[i])
	}
	return g
}

// start starts a member on a host. Its configuration has no address of any member.
func (g *named) start(i, host int) {
	g.t.Helper()
	var all strings.Builder
	for n := range groupSize {
		fmt.Fprintf(&all, "\n          - {name: m%d, peer: %s/orders}", n+1, store(n))
	}
	own := secret(g.t, g.ca, store(i), g.hosts[host])
	g.tls = ", tls: " + own
	g.at[i] = host
	g.now[i] = daemon.Launch(g.t, program, g.hosts[host], g.t.TempDir(), strings.Replace(g.head(store(i), "tls: "+own+"\n"), "size: 32MiB, extents: 0", "size: 64MiB", 1)+fmt.Sprintf(`flows:
  - name: orders
    from: {rdma: "roce:%s", listen: ":%d", message: 1KiB, clients: 8, window: 64}
    to:
      file: %s/orders
      acknowledge: written
      segment: {size: 4MiB}
      group:
        name: orders
        self: m%d
        listen: ":%d"
        suspect: 500ms
        lag: 4MiB
        members: %s
`, g.hosts[host].Ifname, flowPort, g.dirs[i], i+1, groupPort, all.String()))
}

// standing returns what a status says of the group; an empty one if it does not run.
func standing(s *status.Daemon) *status.Group {
	if len(s.Flows) == 0 || s.Flows[0].Group == nil {
		return new(status.Group)
	}
	return s.Flows[0].Group
}

// leader waits until a member leads all three.
func (g *named) leader() (who int) {
	g.t.Helper()
	testenv.Wait(g.t, testenv.Within(40*time.Second), "a member to lead, and to hear the others", func() bool {
		for i, d := range g.now {
			s, err := d.Status()
			if err != nil {
				continue
			}
			is := standing(&s)
			whole := is.State == "leading" && len(is.Members) == groupSize
			for _, m := range is.Members {
				whole = whole && !m.Away && m.Role == "voter"
			}
			if whole {
				who = i
				return true
			}
		}
		return false
	})
	return who
}

// move kills a member, and starts it on another host, with its files.
func (g *named) move(i, host int) {
	g.t.Helper()
	begun := time.Now()
	g.now[i].Kill()
	g.start(i, host)
	who := g.leader()
	g.t.Logf("%s is moved to %v; %v later %s leads and hears all", store(i), g.hosts[host].IP, time.Since(begun).Round(10*time.Millisecond), store(who))
	if gap := time.Since(begun); gap > testenv.Within(2*g.lease+5*time.Second) {
		g.t.Errorf("the others followed after %v, and have two leases, %v, and the time of an election", gap, 2*g.lease)
	}
}

// TestGroupMoves: members of a group that are named by their daemons find one another, and follow a member that moves to
// another address, also if it led. A client that names them keeps its session: nothing is lost or doubled.
func TestGroupMoves(t *testing.T) {
	testenv.Long(t, "TestMove has a flow that is followed")
	testenv.Leaks(t)
	g := newNamed(t)
	defer func() {
		for i, d := range g.now {
			if t.Failed() {
				t.Logf("the log of %s:\n%s", store(i), d.Log)
			}
		}
	}()
	g.leader()
	says(t, g.now[0], []string{fmt.Sprintf("group at %v:%d", g.hosts[2].IP, groupPort), store(2)}, "cluster", "status")
	const count = 30000
	e := g.hosts[1]
	cert, key := issue(t, g.ca, "client", e)
	client := daemon.StartClient(t, flowTest, e, "append", "-tls", strings.Join([]string{cert, key, g.ca.File()}, ","), "-device", "roce:"+e.Ifname, "-ordinary", "-receive-ring", "512",
		"-peer", strings.Join([]string{store(0) + "/orders", store(1) + "/orders", store(2) + "/orders"}, ","), "-etcd", g.etcd.URL, "-count", fmt.Sprint(count), "-rate", "1500", "-timeout", "5m")
	defer func() {
		if t.Failed() {
			t.Logf("the client says %s", client.Kill())
		}
	}()
	who := g.leader()
	g.move((who+1)%groupSize, groupHosts+groupSize)
	g.move(g.leader(), groupHosts+groupSize+1)
	client.Await(t, testenv.Within(2*time.Minute))
	last := g.now[g.leader()].Until(t, "the status", func(*status.Daemon) bool { return true })
	all := standing(&last).Committed
	for _, d := range g.now {
		d.Until(t, "all records", func(s *status.Daemon) bool { return standing(s).Committed >= all })
	}
	for i, d := range g.now {
		d.Terminate(t)
		out, err := g.hosts[g.at[i]].Command(flowTest, "log", "-file", filepath.Join(g.dirs[i], "orders"), "-count", fmt.Sprint(count)).CombinedOutput()
		if err != nil {
			t.Errorf("the log of %s: %v\n%s", store(i), err, out)
		}
	}
}

// TestClientNames: a client that names a flow finds it, follows it to another address, and says what a name that leads
// nowhere lacks.
func TestClientNames(t *testing.T) {
	testenv.Long(t, "TestMove has a flow that is followed")
	testenv.Leaks(t)
	r := newRig(t, 4)
	sink := r.sink(2, "storage", "")
	r.registered(sink)
	e := r.hosts[1]
	send := func(peer string, count int, timeout string) *daemon.Client {
		return daemon.StartClient(t, flowTest, e, "append", "-device", "roce:"+e.Ifname, "-ordinary", "-receive-ring", "512", "-size", "256",
			"-peer", peer, "-etcd", r.etcd.URL, "-count", fmt.Sprint(count), "-rate", "1000", "-timeout", timeout)
	}
	client := send("storage/feed", 15000, "2m")
	sink.Until(t, "messages", func(s *status.Daemon) bool { return s.Flows[0].Packets > 100 })
	sink.Terminate(t)
	other := r.sink(3, "storage", "")
	other.Until(t, "messages at the other address", func(s *status.Daemon) bool { return s.Flows[0].Packets > 100 })
	client.Await(t, testenv.Within(time.Minute))
	for peer, want := range map[string]string{"storage/other": "daemon storage has no flow other", "nobody/feed": "no daemon is registered as nobody"} {
		c := send(peer, 1, "3s")
		testenv.Wait(t, testenv.Within(30*time.Second), "the client to end", c.Over)
		if out := c.Kill(); !strings.Contains(out, want) || !strings.Contains(out, "append to "+peer) {
			t.Errorf("to %s it says %q, not %q", peer, out, want)
		}
	}
}
