package paths

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

const members = 3

// group is a group of three daemons, each at both switches, and hosts with clients and with a relay.
type group struct {
	t      *testing.T
	ends   [2][]*testenv.End // by switch; behind those of the members are those of the clients and of the relay
	dirs   [members]string
	now    [members]*daemon.Daemon
	mode   string         // of its paths
	own    map[int]string // the modes of members that have another one
	client *daemon.Client
	loads  load
	count  int // messages that clients append
}

// load is how clients append.
type load int

const (
	overSecond load = iota // switch alone, which is never cut in these tests
	overBoth
	overRelay // which is at both
)

// perClient is how many messages a client appends.
const perClient = 2000

// newGroup starts a group with a path mode.
func newGroup(t *testing.T, mode string, loads load) *group {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	o := testenv.PairOptions{MTU: 4200}
	g := &group{t: t, mode: mode, loads: loads}
	g.ends[0] = testenv.NewSwitch(t, members+2, o)
	g.ends[1] = testenv.SecondSwitch(t, g.ends[0], o)
	t.Cleanup(func() {
		if t.Failed() {
			for i, d := range g.now {
				t.Logf("the log of member %d:\n%s", i+1, d.Log.String())
			}
		}
	})
	for i := range members {
		g.dirs[i] = testenv.DiskDir(t)
		g.start(i)
	}
	return g
}

// start starts a member.
func (g *group) start(i int) {
	g.t.Helper()
	var all strings.Builder
	for n := range members {
		fmt.Fprintf(&all, "\n          - {name: m%d, address: \"%s:7491\", clients: \"%[2]s:7471\", paths: [{address: \"%[3]s:7491\", clients: \"%[3]s:7471\"}]}", n+1, g.ends[0][n].IP, g.ends[1][n].IP)
	}
	g.now[i] = daemon.Launch(g.t, program, g.ends[0][i], g.dirs[i], fmt.Sprintf(`region: {size: 64MiB, pages: ordinary}
flows:
  - name: orders
    from: {rdma: "roce:%s", listen: "%s:7471", paths: [{rdma: "roce:%s", listen: "%s:7471"}], message: 1KiB, clients: 4, window: 128}
    to:
      file: %s
      acknowledge: written
      group:
        name: orders
        self: m%d
        suspect: 4s
        lag: 4MiB
        path_mode: %s
        members: %s
`, g.ends[0][i].Ifname, g.ends[0][i].IP, g.ends[1][i].Ifname, g.ends[1][i].IP, g.file(i), i+1, cmp.Or(g.own[i], g.mode), all.String()))
}

func (g *group) file(i int) string { return filepath.Join(g.dirs[i], "orders") }

// of returns a member's part of its status; nil: there is none now.
func of(s *status.Daemon) *status.Group {
	if len(s.Flows) != 1 {
		return nil
	}
	return s.Flows[0].Group
}

// status returns what a member says of the group; nil: nothing now.
func (g *group) status(i int) *status.Group {
	s, err := g.now[i].Status()
	if err != nil {
		return nil
	}
	return of(&s)
}

// leader waits until all members follow one leader.
func (g *group) leader() (who int, epoch uint64) {
	g.t.Helper()
	testenv.Wait(g.t, testenv.Within(time.Minute), "all members to follow one leader", func() bool {
		who, epoch = -1, 0
		for i := range members {
			s := g.status(i)
			if s == nil || s.Leader == "" || epoch > 0 && s.Epoch != epoch {
				return false
			}
			if epoch = s.Epoch; s.State == "leading" {
				who = i
			}
		}
		return who >= 0
	})
	return who, epoch
}

// well has the paths from a leader to its followers in the order of the members, by path mode, while all work.
var well = map[string][2]int{"standby": {0, 0}, "active": {0, 1}}

// settled waits until the leader sends to its followers over paths, in the order of the members, and each of them says so.
func (g *group) settled(leader int, paths [2]int) {
	g.t.Helper()
	defer func() {
		for i := range members {
			if s := g.status(i); g.t.Failed() && s != nil {
				g.t.Logf("member %d: %+v", i+1, *s)
			}
		}
	}()
	testenv.Wait(g.t, testenv.Within(time.Minute), fmt.Sprint("the followers to use the paths ", paths), func() bool { return g.uses(leader, paths[:]) })
}

// uses reports whether a leader sends to its followers over paths, in the order of the members, and each of them says so.
func (g *group) uses(leader int, paths []int) bool {
	s := g.status(leader)
	if s == nil || s.PathMode != g.mode {
		return false
	}
	for _, m := range s.Members {
		who := g.who(m.Name)
		if who == leader {
			continue
		}
		// The device is that of the leader: what it sends over.
		if len(paths) == 0 || m.Device != g.device(paths[0], leader) || !g.gets(who, paths[0]) {
			return false
		}
		paths = paths[1:]
	}
	return len(paths) == 0
}

// gets reports whether a follower says that its records come over a path.
func (g *group) gets(follower, path int) bool {
	s := g.status(follower)
	if s == nil || len(s.Paths) != 2 || s.PathMode != g.mode {
		return false
	}
	for i := range s.Paths {
		if p := &s.Paths[i]; (p.State == "connected") != (p.Device == g.device(path, follower)) {
			return false
		}
	}
	return true
}

// who returns the place of a member by its name.
func (g *group) who(name string) (i int) {
	_, _ = fmt.Sscanf(name, "m%d", &i)
	return i - 1
}

// load starts a client, unless one appends. A client that is done is followed by another one, so that there is load however
// long it takes until the members have found a path.
func (g *group) load() {
	g.t.Helper()
	if g.client != nil {
		if !g.client.Over() {
			return
		}
		g.client.Await(g.t, time.Minute)
	}
	var to []string
	switch g.loads {
	case overSecond:
		to = []string{"-device", g.device(1, members), "-to", g.at(1), "-flow", "orders"}
	case overBoth:
		to = []string{"-device", g.device(0, members), "-to", g.at(0), "-flow", "orders", "-paths", g.device(1, members) + "=" + g.at(1)}
	case overRelay:
		to = []string{"-device", g.device(0, members), "-to", g.ends[0][members+1].IP.String() + ":7471"}
	}
	g.count += perClient
	g.client = daemon.StartClient(g.t, flowTest, g.ends[0][members], append([]string{"append", "-ordinary", "-size", "512", "-count", fmt.Sprint(perClient),
		"-rate", "500", "-timeout", "15m"}, to...)...)
}

// device returns the RDMA device of a host at a switch.
func (g *group) device(path, host int) string { return "roce:" + g.ends[path][host].Ifname }

// at returns where the members take clients over a path.
func (g *group) at(path int) string {
	var all []string
	for _, e := range g.ends[path][:members] {
		all = append(all, e.IP.String()+":7471")
	}
	return strings.Join(all, ",")
}

// cut makes a switch drop all frames of a member, and returns a function that ends that.
func (g *group) cut(path, member int) (mend func()) {
	g.t.Helper()
	e := g.ends[path][member]
	mend = e.Lose(g.t, testenv.FromEnd, 0)
	e.Lose(g.t, testenv.ToEnd, 0)
	return mend
}

// progresses waits until more records are committed.
func (g *group) progresses(leader int) {
	g.t.Helper()
	from := uint64(0)
	testenv.Wait(g.t, testenv.Within(time.Minute), "more records to be committed", func() bool {
		g.load()
		s := g.status(leader)
		if s != nil && from == 0 {
			from = s.Committed + 100
		}
		return s != nil && s.Committed >= from
	})
}

// complete waits until all members have all records, stops them, and checks that each log has each message once, and
// that the logs are equal.
func (g *group) complete() {
	g.t.Helper()
	g.client.Await(g.t, time.Minute)
	testenv.Wait(g.t, testenv.Within(time.Minute), "all members to have all records", func() bool {
		last := uint64(0)
		for i := range members {
			s := g.status(i)
			if s == nil || s.Committed != s.Last || s.Last < uint64(g.count) || last > 0 && s.Last != last {
				return false
			}
			last = s.Last
		}
		return true
	})
	testenv.Wait(g.t, testenv.Within(time.Minute), "all members to have noted that all records are committed", func() bool {
		for i := range members {
			if g.ends[0][i].Command(flowTest, "log", "-file", g.file(i), "-count", fmt.Sprint(g.count)).Run() != nil {
				return false
			}
		}
		return true
	})
	for _, d := range g.now {
		d.Terminate(g.t)
	}
	sums := map[[32]byte]int{}
	for i := range members {
		daemon.StartClient(g.t, flowTest, g.ends[0][i], "log", "-file", g.file(i), "-count", fmt.Sprint(g.count)).Await(g.t, time.Minute)
		sums[g.sum(i)] = i
	}
	if len(sums) != 1 {
		g.t.Errorf("the logs of the members differ: %v", sums)
	}
}

// sum returns a checksum of a member's log, without the times of receipt, which differ between members.
func (g *group) sum(i int) [32]byte {
	g.t.Helper()
	raw, err := g.ends[0][i].Command(program, "log", "read", g.file(i)).Output()
	testenv.Checkf(g.t, err, "read the log of member %d", i+1)
	var text strings.Builder
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		text.WriteString(strings.Join(append(f[:1:1], f[2:]...), " ") + "\n")
	}
	return sha256.Sum256([]byte(text.String()))
}

// same checks that the leader and its epoch are those from before.
func (g *group) same(who int, epoch uint64) {
	g.t.Helper()
	if now, later := g.leader(); now != who || later != epoch {
		g.t.Errorf("member %d led epoch %d, and member %d leads epoch %d: a path that failed must not cause an election", who+1, epoch, now+1, later)
	}
}

// takes waits until a member gets more messages of clients over a path, if they use both.
func (g *group) takes(member, path int) {
	g.t.Helper()
	if g.loads == overSecond {
		return
	}
	from := uint64(0)
	testenv.Wait(g.t, testenv.Within(time.Minute), fmt.Sprintf("more messages over path %d of member %d", path, member+1), func() bool {
		g.load()
		s, err := g.now[member].Status()
		if err != nil || len(s.Flows) != 1 || s.Flows[0].Receives == nil || len(s.Flows[0].Receives.Paths) != 2 {
			return false
		}
		now := s.Flows[0].Receives.Paths[path].Messages
		if from == 0 {
			from = now + 100
		}
		return now >= from
	})
}

// relay starts a relay to the group with a path at each switch.
func (g *group) relay() *daemon.Daemon {
	g.t.Helper()
	var paths [2]string
	for path := range paths {
		first, others, _ := strings.Cut(g.at(path), ",")
		paths[path] = fmt.Sprintf("address: %q, others: [\"%s\"]", first, strings.ReplaceAll(others, ",", `", "`))
	}
	e := g.ends[0][members+1]
	d := daemon.Launch(g.t, program, e, g.t.TempDir(), region+fmt.Sprintf(`flows:
  - name: relay
    from: {rdma: %q, listen: "%s:7471", message: 1KiB, clients: 4, window: 32}
    to: {rdma: %[1]q, queue: 128, peers: [{name: orders, flow: orders, %[3]s, paths: [{rdma: %[4]q, %[5]s}]}]}
`, g.device(0, members+1), e.IP, paths[0], g.device(1, members+1), paths[1]))
	d.Running(g.t)
	return d
}

// TestGroup: when a link of the leader fails under load, it goes on to lead in the same epoch. Its followers, and clients or
// a relay that are at both switches, use the other link until the first one is well. With active paths the followers use both links then.
// All logs have each message once and in order.
func TestGroup(t *testing.T) {
	for _, c := range []struct {
		name, mode string
		loads      load
	}{{"standby", "standby", overSecond}, {"client", "standby", overBoth}, {"active", "active", overBoth}, {"relay", "standby", overRelay}} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "standby" {
				testenv.Long(t, "the case standby has the same changes of paths")
			}
			testGroup(t, newGroup(t, c.mode, c.loads))
		})
	}
}

func testGroup(t *testing.T, g *group) {
	who, epoch := g.leader()
	g.settled(who, well[g.mode])
	var relay *daemon.Daemon
	if g.loads == overRelay {
		relay = g.relay()
	}
	g.takes(who, 0)
	for n, path := range well[g.mode] {
		if n > 0 && g.mode == "standby" && testing.Short() {
			break
		}
		mend := g.cut(path, who)
		g.settled(who, [2]int{1 - path, 1 - path})
		g.takes(who, 1-path)
		g.progresses(who)
		text, err := g.now[who].Control("status", "-o", "wide")
		if err != nil || strings.Count(text, "over "+g.device(1-path, who)) != members-1 || g.mode == "active" && !strings.Contains(text, "active") {
			t.Errorf("the leader's status does not name path %d (%v):\n%s", 1-path, err, text)
		}
		if relay != nil {
			g.alone(relay, 2*who+1-path)
		}
		g.same(who, epoch)
		mend()
		g.settled(who, well[g.mode])
		g.takes(who, 0)
		g.progresses(who)
		g.same(who, epoch)
	}
	for i := range members {
		if s := g.status(i); i != who && s != nil && (s.Paths[0].Failures == 0 || s.Paths[1].Connections == 0 || s.Paths[0].Left.IsZero()) {
			t.Errorf("the paths of member %d: %+v", i+1, s.Paths)
		}
	}
	if relay != nil {
		g.client.Await(t, time.Minute)
		relay.Terminate(t)
	}
	g.complete()
}

// alone waits until the relay is connected over one of its paths to the members, and over no other one.
func (g *group) alone(relay *daemon.Daemon, path int) {
	g.t.Helper()
	relay.Until(g.t, fmt.Sprint("path ", path, " alone"), func(s *status.Daemon) bool {
		for i, p := range paths(s) {
			if (p.State == "connected") != (i == path) {
				return false
			}
		}
		return true
	})
}
