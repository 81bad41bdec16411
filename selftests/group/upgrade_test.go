package group

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestUpgrade: while clients append, the members of a group of an older build are exchanged for those of this build, one by
// one, and back. Clients are of the older build during the first half, and of this one during the second. At the end all logs
// have every message once, and are equal.
func TestUpgrade(t *testing.T) {
	older := os.Getenv("UNIFIEDD_OLDER")
	if older == "" {
		t.Skip("short: make test-long SUITE=upgrade builds the older release")
	}
	testenv.Root(t)
	before := perClient
	perClient = 8 * rate
	t.Cleanup(func() { perClient = before })
	g := groupOf(t, setting.Seed(t), "durable", 1)
	old := filepath.Join(older, "unifiedd")
	g.builds, g.append = slices.Repeat([]string{old}, members), filepath.Join(older, "unified-flow-test")
	for i := range members {
		g.start(i)
	}
	leader, _ := g.leader(-1, 0)
	g.progresses()
	g.settled()
	says := map[string]string{program: g.version(program), old: g.own(leader)} // a build that says no version shows none of itself
	t.Logf("from %s to %s", g.version(old), g.version(program))
	g.exchangeAll(program, says)
	g.append = flowTest
	g.exchangeAll(old, says)
	g.client.Await(t, limit)
	g.equal()
	for _, d := range g.now {
		d.Terminate(t)
	}
	g.compare()
	g.Logf("%d messages were appended and acknowledged: each is in all logs, once", g.count)
}

// own returns the version that a member shows of itself; "-": none.
func (g *group) own(i int) string {
	g.Helper()
	s := g.status(i)
	if s == nil || len(s.Members) != members {
		g.Fatalf("the status of member %d is %+v", i+1, s)
	}
	return cmp.Or(s.Members[i].Version, "-")
}

// exchangeAll exchanges the followers one by one, and then the leader, which hands over first: docs/how-to/upgrade.md says this order.
func (g *group) exchangeAll(to string, says map[string]string) {
	g.Helper()
	for range members {
		g.client.Await(g.T, limit) // each gap is of one client
		g.progresses()
		g.settled()
		leader, epoch := g.leader(-1, 0)
		who := slices.IndexFunc(g.builds, func(build string) bool { return build != to })
		if who == leader { // another one first, if there is one
			if n := slices.IndexFunc(g.builds[who+1:], func(build string) bool { return build != to }); n >= 0 {
				who += 1 + n
			}
		}
		g.exchange(who, leader, epoch, to, says)
	}
}

// exchange exchanges one member.
func (g *group) exchange(who, leader int, epoch uint64, to string, says map[string]string) {
	g.Helper()
	seen, role := len(g.heardGaps()), "follower"
	if who == leader {
		role = "leader"
		next := (who + 1) % members
		if text, err := g.now[who].Control("group", "transfer", "orders", fmt.Sprintf("m%d", next+1)); err != nil {
			g.Fatalf("transfer: %v\n%s", err, text)
		}
		g.leader(who, epoch)
	}
	g.now[who].Terminate(g.T)
	g.logs[who] += g.now[who].Log.String()
	g.builds[who] = to
	g.start(who)
	g.settled()
	g.progresses()
	now, _ := g.leader(-1, 0)
	if g.builds[now] == program || says[g.builds[now]] != "-" { // an older leader may show no versions
		var want []string
		for _, build := range g.builds {
			want = append(want, says[build])
		}
		g.Logf("group status:\n%s", g.versions(now, want...))
	}
	for i, build := range g.builds {
		if build == program && says[g.builds[now]] == "-" {
			g.asksOlder(i, now)
		}
	}
	for asking := range says {
		g.asked(asking)
	}
	gap := time.Duration(0)
	for _, one := range g.heardGaps()[seen:] {
		gap = max(gap, one)
	}
	g.Logf("member %d, the %s, is of %s now: the longest gap is %v", who+1, role, g.version(to), gap)
}

// asksOlder asks a member of this build for what only its leader knows, which is of a build that takes no such requests. The
// answer says so, and the connection between the two stays.
func (g *group) asksOlder(i, leader int) {
	g.Helper()
	text, err := exec.Command(program, "group", "status", "orders", "--socket", g.now[i].Socket).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "older release") {
		g.Errorf("member %d says of its older leader (%v):\n%s", i+1, err, text)
	}
	if strings.Contains(g.now[leader].Log.String(), "malformed") {
		g.Errorf("the older leader gets what it does not know:\n%s", g.now[leader].Log)
	}
}

// asked asks each member with the program of a build. The answer has all members. If the member cannot tell the rest, it says
// that this is because of a release.
func (g *group) asked(program string) {
	g.Helper()
	for i := range members {
		out, err := exec.Command(program, "group", "status", "orders", "--socket", g.now[i].Socket).CombinedOutput()
		text := string(out)
		known := err == nil || strings.Contains(text, "which does not know this request") || strings.Contains(text, "it is of an older release")
		if !known || !strings.HasPrefix(text, "MEMBER") || strings.Count(text, " voter ") != members {
			g.Errorf("the program of %s says of member %d, which is of %s (%v):\n%s", g.version(program), i+1, g.version(g.builds[i]), err, text)
		}
	}
}
