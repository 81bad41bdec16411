// Package group has tests of a group of daemons that keep one log, through failures.
package group

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the daemon, and flowTest that of its clients. Both are built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }

const (
	members = 3
	// few is how many fail-overs there are without UNIFIEDD_FAILOVERS.
	few = 6
	// perClient is how many messages a client appends, and rate how many a second. A client that is done is
	// followed by another one, so that there is load however long the faults take.
	perClient, rate = 8000, 1000
	limit           = 3 * time.Minute
)

// group is three daemons and a client, each in a namespace of its own.
type group struct {
	*testing.T
	random *rand.Rand
	ends   []*testenv.End
	dirs   []string
	now    []*daemon.Daemon
	logs   []string // of earlier lives
	client *daemon.Client
	count  uint64 // of messages that clients append
	secret *authority.Authority
}

// newGroup starts three daemons.
func newGroup(t *testing.T, seed uint64) *group {
	t.Helper()
	g := &group{T: t, random: rand.New(rand.NewPCG(seed, 0)), ends: testenv.NewSwitch(t, members+1, testenv.PairOptions{MTU: 4200}), now: make([]*daemon.Daemon, members), logs: make([]string, members), secret: authority.New(t)}
	for i := range members {
		g.dirs = append(g.dirs, testenv.DiskDir(t))
		g.start(i)
	}
	return g
}

// TestFailOver: the leader is killed, stopped or cut off again and again while a client appends. At the
// end all logs have every message once and in order, and they are equal.
func TestFailOver(t *testing.T) {
	faults, seed := setting.Number(t, "UNIFIEDD_FAILOVERS", few), setting.Number(t, "UNIFIEDD_SEED", uint64(time.Now().UnixNano()))
	t.Logf("UNIFIEDD_FAILOVERS=%d UNIFIEDD_SEED=%d", faults, seed)
	testenv.Root(t)
	g := newGroup(t, seed)
	g.leader(-1, 0)
	kinds := []func(int){g.kill, g.pause, g.cut}
	for n := range faults {
		g.together()
		g.load()
		time.Sleep(time.Duration(g.random.IntN(500)) * time.Millisecond)
		who, epoch := g.leader(-1, 0)
		began := time.Now()
		kinds[(n+seed)%uint64(len(kinds))](who)
		next, _ := g.leader(who, epoch)
		t.Logf("member %d leads %v after member %d failed", next+1, time.Since(began).Round(time.Millisecond), who+1)
		g.heal(who)
	}
	g.client.Await(t, limit)
	g.together()
	g.shown()
	for _, d := range g.now {
		d.Terminate(t)
	}
	g.compare()
}

// TestRenamedCertificate: after a reload a member proves again who it is. One whose certificate has
// another name is left out, and the others go on.
func TestRenamedCertificate(t *testing.T) {
	testenv.Root(t)
	g := newGroup(t, 0)
	leader, _ := g.leader(-1, 0)
	who := (leader + 1) % members
	certificate, key := g.issue(fmt.Sprintf("m%d", who+1), who)
	wrong, wrongKey := g.issue("mallory", who)
	g.replace(wrong, certificate)
	g.replace(wrongKey, key)
	g.now[who].Hangup(t)
	testenv.Wait(t, testenv.Within(20*time.Second), "the leader to refuse the certificate", func() bool {
		return strings.Contains(g.now[leader].Log.String(), "mallory")
	})
	g.load()
	g.client.Await(t, limit)
}

// start starts a member's daemon.
func (g *group) start(i int) {
	g.Helper()
	var all strings.Builder
	for n := range members {
		fmt.Fprintf(&all, "\n          - {name: m%d, address: \"%s:7491\", clients: \"%[2]s:7471\"}", n+1, g.ends[n].IP)
	}
	certificate, key := g.issue(fmt.Sprintf("m%d", i+1), i)
	g.now[i] = daemon.Launch(g.T, program, g.ends[i], g.dirs[i], fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
tls: {certificate: %s, key: %s, authority: %s}
flows:
  - name: orders
    from: {rdma: "roce:%s", listen: "%s:7471", message: 1KiB, clients: 4, window: 64}
    to:
      file: %s/orders
      acknowledge: durable
      segment: {size: 4MiB}
      group:
        name: orders
        self: m%d
        suspect: 300ms
        lag: 4MiB
        members: %s
`, certificate, key, g.secret.File(), g.ends[i].Ifname, g.ends[i].IP, g.dirs[i], i+1, all.String()))
}

func (g *group) issue(name string, end int) (certificate, key string) {
	return issue(g.T, g.secret, name, g.ends[end])
}

// issue makes a certificate for the address of an end.
func issue(t *testing.T, secret *authority.Authority, name string, e *testenv.End) (certificate, key string) {
	return secret.Issue(t, name, func(c *x509.Certificate) { c.IPAddresses = []net.IP{e.IP.AsSlice()} })
}

// replace renames a file, over another one.
func (g *group) replace(from, to string) {
	g.Helper()
	if err := os.Rename(from, to); err != nil {
		g.Fatal(err)
	}
}

// load starts a client, which knows all members, unless one appends.
func (g *group) load() {
	g.Helper()
	if g.client != nil {
		if !g.client.Over() {
			return
		}
		g.client.Await(g.T, limit)
	}
	var to []string
	for i := range members {
		to = append(to, g.ends[i].IP.String()+":7471")
	}
	e := g.ends[members]
	certificate, key := g.issue("client", members)
	g.count += perClient
	g.client = daemon.StartClient(g.T, flowTest, e, "append", "-tls", strings.Join([]string{certificate, key, g.secret.File()}, ","), "-device", "roce:"+e.Ifname, "-ordinary", "-receive-ring", "512", "-to", strings.Join(to, ","),
		"-flow", "orders", "-count", fmt.Sprint(perClient), "-rate", fmt.Sprint(rate), "-timeout", "20m")
}

var leads = regexp.MustCompile(`this member leads the group" flow=orders epoch=(\d+)`)

// leader waits until a member other than one leads a later epoch than the given one.
func (g *group) leader(but int, after uint64) (who int, epoch uint64) {
	g.Helper()
	who = -1
	testenv.Wait(g.T, testenv.Within(20*time.Second), "a member to lead", func() bool {
		for i := range members {
			for _, m := range leads.FindAllStringSubmatch(g.logs[i]+g.now[i].Log.String(), -1) {
				if e, _ := strconv.ParseUint(m[1], 10, 64); e > epoch {
					who, epoch = i, e
				}
			}
		}
		return who >= 0 && who != but && epoch > after
	})
	return who, epoch
}

// kill kills a daemon.
func (g *group) kill(who int) {
	g.Logf("member %d is killed", who+1)
	g.now[who].Kill()
}

// pause stops a daemon: its connections stay.
func (g *group) pause(who int) {
	g.Logf("member %d is stopped", who+1)
	g.now[who].Pause(g.T)
}

// cut cuts a daemon's network.
func (g *group) cut(who int) {
	g.Logf("member %d is cut off", who+1)
	g.ends[who].SetDown(g.T)
}

// heal ends whatever fault a member has.
func (g *group) heal(who int) {
	g.Helper()
	select {
	case <-g.now[who].Exited:
		g.logs[who] += g.now[who].Log.String()
		g.start(who)
	default:
		g.now[who].Resume(g.T)
		g.ends[who].SetUp(g.T)
	}
}

// together waits until all members have about as many records.
func (g *group) together() {
	g.Helper()
	testenv.Wait(g.T, testenv.Within(60*time.Second), "all members to have the newest records", func() bool {
		least, most := uint64(1<<63), uint64(0)
		for i := range members {
			s, err := g.now[i].Status()
			if err != nil || len(s.Flows) != 1 || s.Flows[0].Group == nil {
				return false
			}
			at := s.Flows[0].Group.Committed
			least, most = min(least, at), max(most, at)
		}
		return most-least < rate/2
	})
}

// shown checks that all members show the same leader to people and to Prometheus.
func (g *group) shown() {
	g.Helper()
	last, epoch := g.leader(-1, 0)
	for i, d := range g.now {
		text, err := d.Control("status")
		if want := fmt.Sprintf("m%d leads epoch %d", last+1, epoch); err != nil || !strings.Contains(text, want) {
			g.Errorf("the status of member %d does not say %q (%v):\n%s", i+1, want, err, text)
		}
		leads := 0
		if i == last {
			leads = 1
		}
		page, err := d.Page("/metrics")
		if line := fmt.Sprintf("unifiedd_group_leads{flow=\"orders\"} %d\n", leads); err != nil || !strings.Contains(page, line) {
			g.Errorf("the metrics of member %d have no %s (%v):\n%s", i+1, line, err, page)
		}
	}
}

// compare checks that each log has every message once, and that all logs are equal.
func (g *group) compare() {
	g.Helper()
	var paths []string
	for _, dir := range g.dirs {
		paths = append(paths, filepath.Join(dir, "orders"))
	}
	compareLogs(g.T, g.ends, paths, g.count)
}

// compareLogs checks that each log has this many messages once, and that all logs are equal.
func compareLogs(t *testing.T, ends []*testenv.End, paths []string, count uint64) {
	t.Helper()
	var sums []string
	for i, path := range paths {
		sums = append(sums, logSum(t, ends[i], path, count))
	}
	for i, s := range sums {
		if s != sums[0] {
			t.Errorf("%s and %s differ: %v", paths[0], paths[i], sums)
		}
	}
}

// logSum checks that a log has this many messages once. It returns a checksum of all records without their
// times of receipt, in which members differ.
func logSum(t *testing.T, at daemon.Place, path string, count uint64) string {
	t.Helper()
	daemon.StartClient(t, flowTest, at, "log", "-file", path, "-count", fmt.Sprint(count)).Await(t, limit)
	raw, err := at.Command(program, "log", "read", path).Output()
	if err != nil {
		t.Errorf("read %s: %v", path, err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		text.WriteString(strings.Join(append(f[:1:1], f[2:]...), " ") + "\n")
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text.String())))
}
