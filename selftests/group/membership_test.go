package group

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// roster is a group whose members change, and a client. Each has a namespace of its own. Members are m1,
// m2 and so on, by their numbers.
type roster struct {
	*testing.T
	ends    []*testenv.End // of the members, then of the client
	dirs    []string
	now     []*daemon.Daemon // nil: it was not started
	witness int              // place of the witness; -1: there is none
	relay   int              // place of a relay, which clients append to; -1: there is none
	joins   int              // from this place on, members join
	listed  int              // how many members the configurations have
	left    int              // place of a member that they do not have any more; -1: there is none
	suspect time.Duration
	secret  *authority.Authority
	client  *daemon.Client
	count   uint64
}

// soon is suspect where a false alarm does no harm.
const soon = 300 * time.Millisecond

// newRoster makes places for members, and starts those that begin the group.
func newRoster(t *testing.T, places, begin, witness int, suspect time.Duration) *roster {
	t.Helper()
	r := &roster{T: t, ends: testenv.NewSwitch(t, places+1, testenv.PairOptions{MTU: 4200}), now: make([]*daemon.Daemon, places), witness: witness, relay: -1, joins: begin, listed: begin, left: -1, suspect: suspect, secret: authority.New(t)}
	for range places {
		r.dirs = append(r.dirs, testenv.DiskDir(t))
	}
	for i := range begin {
		r.start(i)
	}
	return r
}

// explain logs what a member has logged, if the test has failed.
func (r *roster) explain(i int, d *daemon.Daemon) {
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("member %d:\n%s", i+1, d.Log.String())
		}
	})
}

// text is the configuration of a member.
func (r *roster) text(i int) string {
	var all strings.Builder
	for n := range r.listed {
		if n == r.left {
			continue
		}
		fmt.Fprintf(&all, "\n          - {name: m%d, number: %[1]d, address: \"%[2]s:7491\"", n+1, r.ends[n].IP)
		if n == r.witness {
			fmt.Fprint(&all, ", witness: true")
		} else {
			fmt.Fprintf(&all, ", clients: \"%s:7471\"", r.ends[n].IP)
		}
		fmt.Fprintf(&all, ", joins: %t}", n >= r.joins)
	}
	from, store := fmt.Sprintf("from: {rdma: \"roce:%s\", listen: \"%s:7471\", message: 1KiB, clients: 4, window: 64}", r.ends[i].Ifname, r.ends[i].IP), "acknowledge: durable\n      segment: {size: 4MiB}"
	if i == r.witness {
		from, store = "worker: main", "" // no source
	}
	certificate, key := r.issue(i)
	return fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
tls: {certificate: %s, key: %s, authority: %s}
flows:
  - name: orders
    %s
    to:
      file: %s/orders
      %s
      group:
        name: orders
        self: m%d
        suspect: %v
        lag: 4MiB
        members: %s
`, certificate, key, r.secret.File(), from, r.dirs[i], store, i+1, r.suspect, all.String())
}

func (r *roster) issue(i int) (certificate, key string) {
	return issue(r.T, r.secret, fmt.Sprintf("m%d", i+1), r.ends[i])
}

// start starts a member's daemon.
func (r *roster) start(i int) {
	r.Helper()
	r.now[i] = daemon.Launch(r.T, program, r.ends[i], r.dirs[i], r.text(i))
	r.explain(i, r.now[i])
}

// reload gives all daemons the present list of members. No flow may restart.
func (r *roster) reload() {
	r.Helper()
	for i, d := range r.now {
		if d == nil || i == r.left {
			continue
		}
		before, err := d.Status()
		testenv.Must(r, err)
		d.Configure(r.T, r.text(i))
		if text, err := d.Control("reload"); err != nil || !strings.Contains(text, "the list of members changes") {
			r.Fatalf("reload member %d: %v\n%s", i+1, err, text)
		}
		if after, err := d.Status(); err != nil || !after.Flows[0].Since.Equal(before.Flows[0].Since) {
			r.Errorf("the flow of member %d has restarted (%v)", i+1, err)
		}
	}
}

// load makes sure that a client appends. It knows all members with logs.
func (r *roster) load() {
	r.Helper()
	if r.client != nil {
		if !r.client.Over() {
			return
		}
		r.client.Await(r.T, limit)
	}
	var to []string
	for i := range r.dirs {
		if i != r.witness {
			to = append(to, r.ends[i].IP.String()+":7471")
		}
	}
	e := r.ends[len(r.dirs)]
	certificate, key := issue(r.T, r.secret, "client", e)
	r.count += perClient
	r.client = daemon.StartClient(r.T, flowTest, e, "append", "-tls", strings.Join([]string{certificate, key, r.secret.File()}, ","), "-device", "roce:"+e.Ifname, "-ordinary", "-receive-ring", "512", "-to", strings.Join(to, ","),
		"-flow", "orders", "-count", fmt.Sprint(perClient), "-rate", fmt.Sprint(rate), "-timeout", "20m")
}

// leader waits until a member leads another epoch than the given one, as that member itself says, and can
// commit.
func (r *roster) leader(but uint64) (who int, epoch uint64) {
	r.Helper()
	testenv.Wait(r.T, testenv.Within(30*time.Second), "a member to lead", func() bool {
		who, epoch = -1, but
		for i, d := range r.now {
			if d == nil {
				continue
			}
			s, err := d.Status()
			if err != nil || len(s.Flows) != 1 || s.Flows[0].Group == nil {
				continue
			}
			if g := s.Flows[0].Group; g.State == "leading" && g.Epoch > epoch {
				who, epoch = i, g.Epoch // an earlier leader may not know yet
			}
		}
		return who >= 0
	})
	return who, epoch
}

// committed waits until the leader has committed some more records.
func (r *roster) committed(more uint64) {
	r.Helper()
	who, _ := r.leader(0)
	position := func() uint64 {
		s, err := r.now[who].Status()
		if err != nil || s.Flows[0].Group == nil {
			return 0
		}
		return s.Flows[0].Group.Committed
	}
	before := position()
	testenv.Wait(r.T, testenv.Within(30*time.Second), "more records to be committed", func() bool {
		r.load() // the client may have ended meanwhile
		return position() >= before+more
	})
}

// members waits until the leader says that these have these roles.
func (r *roster) members(want string) {
	r.Helper()
	testenv.Wait(r.T, testenv.Within(30*time.Second), "the members to be "+want, func() bool {
		who, _ := r.leader(0)
		text, err := r.now[who].Control("group", "status", "orders")
		if err != nil || strings.Contains(text, "away") {
			return false
		}
		var all []string
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); len(f) > 2 && f[0] != "MEMBER" {
				all = append(all, f[0]+" "+f[2])
			}
		}
		return strings.Join(all, ", ") == want
	})
}

// finish waits for the client, and checks that the logs of some members are equal and have every message.
func (r *roster) finish(places ...int) {
	r.Helper()
	r.client.Await(r.T, limit)
	testenv.Wait(r.T, testenv.Within(30*time.Second), "all members to have all records", func() bool {
		last := map[uint64]bool{}
		for _, i := range places {
			s, err := r.now[i].Status()
			if err != nil || s.Flows[0].Group == nil {
				return false
			}
			last[s.Flows[0].Group.Committed] = true
		}
		return len(last) == 1
	})
	var paths []string
	var ends []*testenv.End
	for _, i := range places {
		r.now[i].Terminate(r.T)
		paths, ends = append(paths, r.dirs[i]+"/orders"), append(ends, r.ends[i])
	}
	compareLogs(r.T, ends, paths, r.count)
}

// TestReplace: while a client appends, a member dies for good and another one takes its place. Then that one
// is made the leader.
func TestReplace(t *testing.T) {
	testenv.Root(t)
	r := newRoster(t, 4, 3, -1, soon)
	r.load()
	r.committed(rate / 2)
	leader, epoch := r.leader(0)
	gone := (leader + 1) % 3
	r.now[gone].Kill()
	r.listed = 4
	r.reloadBut(gone)
	r.start(3)
	if text, err := r.now[leader].Control("group", "remove", "orders", fmt.Sprintf("m%d", gone+1)); err == nil || !strings.Contains(text, "a group keeps 3") {
		t.Errorf("a member of three was removed (%v): %s", err, text)
	}
	follower := r.now[(leader+2)%3]
	testenv.Wait(t, testenv.Within(limit), "the follower to hear of its leader after the reload", func() bool {
		text, err := follower.Control("group", "status", "orders")
		return err == nil && strings.Contains(text, "leads epoch")
	})
	refused := fmt.Sprintf("member m%d, which leads group orders: ", leader+1)
	if text, err := follower.Control("group", "remove", "orders", fmt.Sprintf("m%d", gone+1)); err == nil || !strings.Contains(text, refused) || !strings.Contains(text, "a group keeps 3") {
		t.Errorf("a follower has removed a member of three (%v): %s", err, text)
	}
	if text, err := follower.Control("group", "transfer", "orders", "m4"); err == nil || !strings.Contains(text, refused+"member 4 is not a voter") {
		t.Errorf("a follower has made another one lead that does not vote (%v): %s", err, text)
	}
	began := time.Now()
	if text, err := follower.Control("group", "replace", "orders", fmt.Sprintf("m%d", gone+1), "m4"); err != nil {
		t.Fatalf("replace: %v\n%s", err, text)
	}
	t.Logf("member %d was replaced within %v", gone+1, time.Since(began).Round(time.Millisecond))
	r.now[gone] = nil
	r.left = gone
	r.reload()
	r.load()
	r.committed(10)
	if _, now := r.leader(0); now != epoch {
		t.Errorf("epoch %d was led when the member died, and %d now", epoch, now)
	}
	if text, err := r.now[3].Control("group", "transfer", "orders", "m4"); err != nil { // which does not lead
		t.Fatalf("transfer: %v\n%s", err, text)
	}
	if who, _ := r.leader(epoch); who != 3 {
		t.Errorf("member %d leads, want 4", who+1)
	}
	r.load()
	r.committed(10)
	for _, i := range []int{3, leader} { // the leader, and a follower
		text := ""
		testenv.Wait(t, testenv.Within(10*time.Second), "member "+fmt.Sprint(i+1)+" to say how far all members are", func() (ok bool) {
			var err error
			text, err = r.now[i].Control("group", "status", "orders")
			return err == nil && strings.Contains(text, "leads epoch") && strings.Count(text, "follows") == 2
		})
		if strings.Contains(text, fmt.Sprintf("m%d ", gone+1)) || strings.Contains(text, "  -  ") { // a follower may not know another's version, the last column
			t.Errorf("group status of member %d:\n%s", i+1, text)
		}
	}
	r.finish(leader, (leader+2)%3, 3)
}

// reloadBut is reload without a member that does not run.
func (r *roster) reloadBut(gone int) {
	r.Helper()
	d := r.now[gone]
	r.now[gone] = nil
	r.reload()
	r.now[gone] = d
}

// TestStopHandsOver: a leader that is stopped in order makes another one lead: nobody waits for suspect.
func TestStopHandsOver(t *testing.T) {
	testenv.Root(t)
	r := newRoster(t, 3, 3, -1, soon)
	r.load()
	r.committed(rate / 2)
	leader, epoch := r.leader(0)
	r.now[leader].Terminate(t)
	if !strings.Contains(r.now[leader].Log.String(), "this leader stops, and has handed over") {
		t.Error("the leader has not handed over")
	}
	r.now[leader] = nil
	r.leader(epoch)
	r.committed(rate / 2)
	r.start(leader)
	r.finish(0, 1, 2)
}

// TestWitness: two members and a witness go on through every single failure, and nothing is lost.
func TestWitness(t *testing.T) {
	testenv.Long(t, "flows/group tests the votes of a witness")
	testenv.Root(t)
	// A member that is only slow must not become a learner just before the other one fails.
	r := newRoster(t, 3, 3, 2, time.Second)
	random := rand.New(rand.NewPCG(setting.Number(t, "UNIFIEDD_SEED", uint64(time.Now().UnixNano())), 0))
	all := "m1 voter, m2 voter, m3 witness"
	kinds := map[string]func(*daemon.Daemon, *testenv.End){
		"killed":  func(d *daemon.Daemon, _ *testenv.End) { d.Kill() },
		"stopped": func(d *daemon.Daemon, _ *testenv.End) { d.Pause(t) },
		"cut off": func(_ *daemon.Daemon, e *testenv.End) { e.SetDown(t) },
	}
	for _, kind := range []string{"killed", "stopped", "cut off"} {
		for _, which := range []string{"leader", "follower", "witness"} {
			r.members(all)
			r.load()
			leader, epoch := r.leader(0)
			who := map[string]int{"leader": leader, "follower": 1 - leader, "witness": 2}[which]
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			t.Logf("the %s, member %d, is %s", which, who+1, kind)
			began := time.Now()
			d := r.now[who]
			kinds[kind](d, r.ends[who])
			r.now[who] = nil
			if which == "leader" {
				r.leader(epoch)
			}
			r.committed(50)
			t.Logf("records are committed again after %v", time.Since(began).Round(time.Millisecond))
			if kind == "killed" {
				r.start(who)
				continue
			}
			r.now[who] = d
			d.Resume(t)
			r.ends[who].SetUp(t)
		}
	}
	r.members(all)
	r.load()
	r.finish(0, 1)
}
