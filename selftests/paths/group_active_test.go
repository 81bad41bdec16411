package paths

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// settled waits until the leader sends to its followers over paths, in the order of the members, and each of them says so.
func (g *group) settled(leader int, paths ...int) {
	g.t.Helper()
	testenv.Wait(g.t, testenv.Within(time.Minute), fmt.Sprint("the followers to use the paths ", paths), func() bool { return g.uses(leader, paths...) })
}

// uses reports whether a leader sends to its followers over paths, in the order of the members, and each of them says so.
func (g *group) uses(leader int, paths ...int) bool {
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

// TestGroupActive: with active paths the two followers of a leader, whichever it is, get their records over different
// paths. When one path fails under load, both use the other one, and they spread again when it is well. The leader stays,
// and all logs have each message once.
func TestGroupActive(t *testing.T) {
	g := newGroupOver(t, "active", 0)
	who, epoch := g.leader()
	g.settled(who, 0, 1)
	g.progresses(who)
	for path := range 2 {
		mend := testenv.Separate(t, g.ends[path][:members]...) // clients still reach them
		g.settled(who, 1-path, 1-path)
		g.progresses(who)
		g.same(who, epoch)
		mend()
		g.settled(who, 0, 1)
		g.progresses(who)
		g.same(who, epoch)
	}
	if text, err := g.now[who].Control("status"); err != nil || !strings.Contains(text, "active") || strings.Count(text, "over "+g.device(1, who)) != 1 {
		t.Errorf("the leader's status does not name both paths (%v):\n%s", err, text)
	}
	failed := 0
	for i := range members {
		if s := g.status(i); i != who && s != nil {
			t.Logf("the paths of member %d: %+v", i+1, s.Paths)
			if s.Paths[0].Failures > 0 && s.Paths[1].Connections > 0 && !s.Paths[0].Left.IsZero() {
				failed++
			}
		}
	}
	if failed != members-1 {
		t.Errorf("%d of the followers say that their first path failed, and that they used the other one", failed)
	}
	next := g.transfer(who)
	g.settled(next, 0, 1)
	g.progresses(next)
	g.complete()
}

// transfer makes another member lead, and returns it. On a busy machine a new leader may be silent for as long as suspect
// while it gets what it lacks, and the old one leads again.
func (g *group) transfer(from int) (next int) {
	g.t.Helper()
	for range 5 {
		to := (from + 1) % members
		_, before := g.leader()
		if _, err := g.now[from].Control("group", "transfer", "orders", fmt.Sprintf("m%d", to+1)); err != nil {
			g.t.Fatalf("make another member lead: %v", err)
		}
		testenv.Wait(g.t, testenv.Within(time.Minute), "a later epoch", func() bool {
			var epoch uint64
			next, epoch = g.leader()
			return epoch > before
		})
		if next != from {
			return next
		}
	}
	g.t.Fatal("no other member stays the leader")
	return 0
}

// TestGroupModes: a follower that has another path mode than its leader, and the leader, say so in their status, by name, and
// warn in their logs. When it has the same one again, they do not.
func TestGroupModes(t *testing.T) {
	g := newGroupOver(t, "active", 0)
	who, _ := g.leader()
	g.settled(who, 0, 1)
	odd := (who + 1) % members
	names := [2]string{fmt.Sprintf("m%d", who+1), fmt.Sprintf("m%d", odd+1)}
	for _, mode := range []string{"standby", "active"} {
		g.own = map[int]string{odd: mode}
		g.now[odd].Terminate(t)
		g.start(odd)
		testenv.Wait(t, testenv.Within(time.Minute), "both to know the mode of the other one", func() bool {
			return g.modeOf(who, names[1]) == mode && g.modeOf(odd, names[0]) == "active"
		})
		for i, d := range []*daemon.Daemon{g.now[who], g.now[odd]} {
			other, has := names[1-i], []string{mode, "active"}[i]
			text, err := d.Control("status")
			if said := strings.Contains(text, "member "+other+" has path_mode "+has); err != nil || said != (mode == "standby") {
				t.Errorf("with mode %s of %s, the status of %s says %v that %s has another one (%v):\n%s", mode, names[1], names[i], said, other, err, text)
			}
			if log := d.Log.String(); mode == "standby" && strings.Count(log, "has another path_mode") != 1 {
				t.Errorf("the log of %s does not warn once:\n%s", names[i], log)
			}
		}
	}
	if warned := g.now[odd].Log.String(); strings.Contains(warned, "has another path_mode") {
		t.Errorf("a member with the same mode warns:\n%s", warned)
	}
}

// modeOf returns the path mode that a member says another one has.
func (g *group) modeOf(who int, other string) string {
	if s := g.status(who); s != nil {
		for _, m := range s.Members {
			if m.Name == other {
				return m.PathMode
			}
		}
	}
	return ""
}

// TestGroupActiveRate: over two links of the same rate from the leader, all members get records at least 1.7 times as fast
// with active paths as with standby.
func TestGroupActiveRate(t *testing.T) {
	testenv.Long(t, "the rate of a link needs seconds")
	best := map[string]float64{}
	for range 3 { // the machine may be busy
		for _, mode := range []string{"standby", "active"} {
			t.Run(mode, func(t *testing.T) { best[mode] = max(best[mode], groupRate(t, mode)) })
		}
		one, two := best["standby"], best["active"]
		t.Logf("%.0f records a second over one link, %.0f over two: %.2f", one, two, two/one)
		if t.Failed() || two >= 1.7*one {
			return
		}
	}
	t.Error("two links are not 1.7 times as fast as one")
}

// groupRate returns how many records a second all members get, if a link carries five megabits.
func groupRate(t *testing.T, mode string) float64 {
	g := newGroupOver(t, mode, 5_000_000)
	who, epoch := g.leader()
	if mode == "active" {
		g.settled(who, 0, 1)
	} else {
		g.settled(who, 0, 0)
	}
	const warm, count = 500, 2500
	e := g.ends[1][members]
	// Two clients have so many messages on their way that a link has work while this machine has other work.
	appends := []string{"append", "-to", g.at(1), "-flow", "orders", "-size", "512", "-count", fmt.Sprint((warm + count) / 2), "-timeout", "15m"}
	first := append(appends, "-device", g.device(1, members), "-ordinary", "+")
	c := daemon.StartClient(t, flowTest, e, append(first, appends...)...)
	ends := func() (least, most uint64) { // of the members' logs
		for i := range members {
			s := g.status(i)
			if s == nil {
				return 0, 0
			}
			if most = max(most, s.Last); i == 0 || s.Last < least {
				least = s.Last
			}
		}
		return least, most
	}
	var from, all uint64
	var began time.Time
	// The leader and one follower may be far ahead of the other one, so this begins with the first that has some.
	testenv.Wait(t, testenv.Within(time.Minute), "the first records", func() bool { began = time.Now(); _, from = ends(); return from >= warm })
	testenv.Wait(t, testenv.Within(3*time.Minute), "all records", func() bool { all, _ = ends(); return all >= warm+count })
	took := time.Since(began)
	c.Await(t, time.Minute)
	g.same(who, epoch)
	for i := range members {
		if s := g.status(i); s != nil && i != who {
			t.Logf("the paths of member %d: %+v", i+1, s.Paths)
		}
	}
	t.Logf("%d records in %v", all-from, took)
	for _, d := range g.now {
		d.Terminate(t)
	}
	return float64(all-from) / took.Seconds()
}
