// Package group has tests of a group of daemons that keep one log, through failures.
package group

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the daemon, and flowTest that of its clients. Both are built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }

const members = 3

var (
	// perClient is how many messages a client appends, and rate how many a second. A client that is done is
	// followed by another one, so that there is load however long the faults take.
	perClient, rate = uint64(2000), uint64(1000)
	// suspect is the members' setting.
	suspect = 300 * time.Millisecond
	limit   = 3 * time.Minute
)

// group is three daemons and some clients, each in a namespace of its own.
type group struct {
	*testing.T
	level  string // of acknowledged messages
	random *rand.Rand
	ends   []*testenv.End
	dirs   []string
	now    []*daemon.Daemon
	logs   []string // of earlier lives
	client *daemon.Client
	said   string   // by earlier clients
	count  uint64   // of messages that clients append
	reads  []string // of logs, while the group ran
	secret *authority.Authority
	mounts bool     // each member has a disk of its own
	boots  []string // by member: a program that starts the daemon; empty: the daemon itself
	builds []string // by member: the daemon of a build; empty: program
	append string   // the program of clients; empty: flowTest
}

// newGroup starts three daemons.
func newGroup(t *testing.T, seed uint64) *group {
	t.Helper()
	return newGroupOf(t, seed, "durable", 1)
}

// newGroupOf starts three daemons that acknowledge at a level, and makes namespaces for clients.
func newGroupOf(t *testing.T, seed uint64, level string, hosts int) *group {
	t.Helper()
	g := groupOf(t, seed, level, hosts)
	for i := range members {
		g.start(i)
	}
	return g
}

// newMounted is newGroup for members with disks of their own.
func newMounted(t *testing.T, seed uint64) *group {
	t.Helper()
	g := groupOf(t, seed, "durable", 1)
	g.mounts = true
	for i := range members {
		g.mount(i)
		g.start(i)
	}
	t.Cleanup(func() {
		for i := range members {
			if t.Failed() {
				all := strings.Split(g.now[i].Log.String(), "\n")
				t.Logf("member %d:\n%s", i+1, strings.Join(all[max(0, len(all)-40):], "\n"))
			}
		}
	})
	return g
}

// groupOf makes places for three daemons.
func groupOf(t *testing.T, seed uint64, level string, hosts int) *group {
	t.Helper()
	g := &group{T: t, level: level, random: rand.New(rand.NewPCG(seed, 0)), ends: testenv.NewSwitch(t, members+hosts, testenv.PairOptions{MTU: 4200}), now: make([]*daemon.Daemon, members), logs: make([]string, members), secret: authority.New(t)}
	for range members {
		g.dirs = append(g.dirs, testenv.DiskDir(t))
	}
	return g
}

// TestRenamedCertificate: after a reload a member proves again who it is. One whose certificate has
// another name is left out, and the others go on.
func TestRenamedCertificate(t *testing.T) {
	testenv.Long(t, "flows/group/transport tests certificates")
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
	g.now[i] = daemon.Launch(g.T, g.program(i), g.ends[i], g.dirs[i], fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
tls: {certificate: %s, key: %s, authority: %s}
flows:
  - name: orders
    from: {rdma: "roce:%s", listen: "%s:7471", message: 1KiB, clients: 16, window: 64}
    to:
      file: %s/orders
      acknowledge: %s
      segment: {size: %s}
      group:
        name: orders
        self: m%d
        suspect: %s
        lag: 4MiB
        members: %s
`, certificate, key, g.secret.File(), g.ends[i].Ifname, g.ends[i].IP, g.place(i), g.level, g.segment(), i+1, suspect, all.String()))
}

// segment returns the size of segments. A disk that is full has room for what was prepared before, which must be little.
func (g *group) segment() string {
	if g.mounts {
		return "1MiB"
	}
	return "4MiB"
}

// place returns the directory of a member's log.
func (g *group) place(i int) string {
	if g.boots == nil && !g.mounts {
		return g.dirs[i]
	}
	return filepath.Join(g.dirs[i], "disk")
}

// program returns the program that starts a member.
func (g *group) program(i int) string {
	switch {
	case g.boots != nil:
		return g.boots[i]
	case g.builds != nil:
		return g.builds[i]
	}
	return program
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
	testenv.Must(g, os.Rename(from, to))
}

// load starts a client, which knows all members, unless one appends.
func (g *group) load() {
	g.Helper()
	if g.client != nil {
		if !g.client.Over() {
			return
		}
		g.client.Await(g.T, limit)
		g.said += g.client.Out.String()
	}
	var to []string
	for i := range members {
		to = append(to, g.ends[i].IP.String()+":7471")
	}
	e := g.ends[members]
	certificate, key := g.issue("client", members)
	g.count += perClient
	g.client = daemon.StartClient(g.T, cmp.Or(g.append, flowTest), e, "append", "-tls", strings.Join([]string{certificate, key, g.secret.File()}, ","), "-device", "roce:"+e.Ifname, "-ordinary", "-receive-ring", "512", "-to", strings.Join(to, ","),
		"-flow", "orders", "-count", fmt.Sprint(perClient), "-rate", fmt.Sprint(rate), "-gaps", gaps.String(), "-timeout", "20m")
}

var leads = regexp.MustCompile(`this member leads the group" flow=orders epoch=(\d+)`)

// leader waits until a member other than one leads a later epoch than the given one.
func (g *group) leader(but int, after uint64) (who int, epoch uint64) {
	g.Helper()
	testenv.Wait(g.T, testenv.Within(20*time.Second), "a member to lead", func() bool {
		who, epoch = g.newest()
		return who >= 0 && who != but && epoch > after
	})
	return who, epoch
}

// newest returns which member has led the newest epoch; -1: none has.
func (g *group) newest() (who int, epoch uint64) {
	who = -1
	for i := range members {
		for _, m := range leads.FindAllStringSubmatch(g.logs[i]+g.now[i].Log.String(), -1) {
			if e, _ := strconv.ParseUint(m[1], 10, 64); e > epoch {
				who, epoch = i, e
			}
		}
	}
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

// shown checks that all members show the same leader to people and to Prometheus, and the leader all versions.
func (g *group) shown() {
	g.Helper()
	last, epoch := g.leader(-1, 0)
	g.versions(last, g.version(program))
	for i, d := range g.now {
		text, err := d.Control("status", "-o", "wide")
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

// version returns that of a program.
func (g *group) version(program string) string {
	g.Helper()
	out, err := g.ends[0].Command(program, "version", "--json").Output()
	var v struct{ Version string }
	if err = errors.Join(err, json.Unmarshal(out, &v)); err != nil {
		g.Fatalf("version: %v\n%s", err, out)
	}
	return v.Version
}

// versions waits until a leader shows these versions of the members: one for all, or one each. It returns what it shows.
func (g *group) versions(leader int, want ...string) (shown string) {
	g.Helper()
	testenv.Wait(g.T, testenv.Within(20*time.Second), "the leader to show the versions", func() bool {
		text, err := exec.Command(program, "group", "status", "orders", "--socket", g.now[leader].Socket).CombinedOutput()
		if err != nil {
			return false
		}
		for i := range members {
			line := regexp.MustCompile(fmt.Sprintf(`(?m)^m%d .* %s$`, i+1, regexp.QuoteMeta(want[i%len(want)])))
			if !line.Match(text) {
				return false
			}
		}
		shown = string(text)
		return true
	})
	return shown
}

// compare checks that each log has every message once, and that all logs are equal.
func (g *group) compare() {
	g.Helper()
	var paths []string
	for i := range members {
		paths = append(paths, g.path(i))
	}
	compareLogs(g.T, g.ends, paths, g.count)
	for i := range members {
		text := logText(g.T, g.ends[i], g.path(i))
		for n, read := range g.reads {
			if !strings.HasPrefix(text, read) {
				g.Errorf("read %d, while the group ran, is no beginning of the log of member %d", n+1, i+1)
			}
		}
	}
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

// path is where a member has its log.
func (g *group) path(i int) string { return filepath.Join(g.place(i), "orders") }

// logSum checks that a log has this many messages once. It returns a checksum of all records.
func logSum(t *testing.T, at daemon.Place, path string, count uint64) string {
	t.Helper()
	daemon.StartClient(t, flowTest, at, "log", "-file", path, "-count", fmt.Sprint(count)).Await(t, limit)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(logText(t, at, path))))
}

// logText reads a log, without the times of receipt, which differ between members.
func logText(t *testing.T, at daemon.Place, path string) string {
	t.Helper()
	raw, err := at.Command(program, "log", "read", path).Output()
	if err != nil {
		t.Errorf("read %s: %v", path, err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		text.WriteString(strings.Join(append(f[:1:1], f[2:]...), " ") + "\n")
	}
	return text.String()
}

// read reads a member's log while the group runs, and returns the position of the last record.
func (g *group) read(i int) (last uint64) {
	g.Helper()
	text := logText(g.T, g.ends[i], g.path(i))
	for line := range strings.Lines(text) {
		last, _ = strconv.ParseUint(strings.Fields(line)[0], 10, 64)
	}
	if last == 0 {
		g.Errorf("the log of member %d has no records while the group runs", i+1)
	}
	g.reads = append(g.reads, text)
	return last
}

// readCommitted reads a member's log while another one leads. It must have committed records only.
func (g *group) readCommitted(i, leader int) {
	g.Helper()
	last := g.read(i)
	s, err := g.now[leader].Status()
	if err != nil || len(s.Flows) != 1 || s.Flows[0].Group == nil {
		g.Errorf("the status of member %d: %v", leader+1, err)
	} else if at := s.Flows[0].Group.Committed; last > at {
		g.Errorf("the log of member %d was read up to position %d, and %d is committed", i+1, last, at)
	}
}
