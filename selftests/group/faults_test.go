package group

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// few is how many faults there are without UNIFIEDD_FAILOVERS, and fewest in the short form.
const few, fewest = 5, 2

// gaps is the shortest time without an acknowledgement that clients print.
const gaps = 5 * time.Millisecond

// electionPort is the TCP port at which members talk about elections.
const electionPort = 7491

// fault is a kind of fault.
type fault struct {
	name string
	// begin breaks something about the leader. end mends it.
	begin func(g *group, leader int) (end func())
	then  outcome
}

// outcome is what must become of a leader in a fault.
type outcome int

const (
	deposed outcome = iota // another member takes over
	goesOn                 // the log goes on, also without an election
	either
)

// faults are all kinds.
var faults = []fault{
	{name: "kill -9", begin: func(g *group, who int) func() { g.kill(who); return func() { g.heal(who) } }},
	{name: "SIGSTOP for 1 to 4 s", begin: stopped},
	{name: "handed over", begin: handOver},
	{name: "stopped in order", begin: stopInOrder},
	{name: "disk full", begin: (*group).fill},
	{name: "disk hangs", begin: (*group).hang},
	{name: "SIGSTOP and resume", begin: func(g *group, who int) func() { g.pause(who); return func() { g.heal(who) } }},
	{name: "link cut", begin: func(g *group, who int) func() { g.cut(who); return func() { g.heal(who) } }},
	{name: "the leader is not heard", begin: func(g *group, who int) func() { return g.ends[who].Lose(g.T, testenv.FromEnd, 0) }},
	{name: "the leader hears nothing", begin: func(g *group, who int) func() { return g.ends[who].Lose(g.T, testenv.ToEnd, 0) }},
	{name: "kill -9, loss and delay at a follower", begin: disturb},
	{name: "flapping link", begin: flap, then: either},
	{name: "elections blocked", begin: func(g *group, who int) func() { return g.ends[who].Lose(g.T, testenv.ToEnd, electionPort) }, then: goesOn},
}

// disturb makes the link of a follower lose and delay frames, and kills the leader.
func disturb(g *group, who int) (end func()) {
	to := (who + 1 + g.random.IntN(members-1)) % members
	mend := g.ends[to].Disturb(g.T, testenv.Disturbance{Seed: g.random.Uint64(), Loss: 0.01, Delay: 500 * time.Microsecond, Jitter: time.Millisecond})
	time.Sleep(300 * time.Millisecond)
	g.kill(who)
	return func() {
		carried, lost := mend()
		g.Logf("the link of member %d has lost %d of %d frames", to+1, lost, carried)
		g.heal(who)
	}
}

// flap cuts the leader's link several times, for about as long as its followers wait for it.
func flap(g *group, who int) (end func()) {
	for range 5 {
		g.ends[who].SetDown(g.T)
		time.Sleep(time.Duration(50+g.random.IntN(350)) * time.Millisecond)
		g.ends[who].SetUp(g.T)
		time.Sleep(time.Duration(g.random.IntN(300)) * time.Millisecond)
	}
	return func() {}
}

// TestFailOver: the leader has faults of all kinds while a client appends. A member is mended only after
// the client has gone on with another leader. At the end all logs have every message once and in order, and
// they are equal. Records that a resumed leader sends are refused.
func TestFailOver(t *testing.T) {
	count, seed := setting.Number(t, "UNIFIEDD_FAILOVERS", shorter(few, fewest)), setting.Seed(t)
	t.Logf("UNIFIEDD_FAILOVERS=%d", count)
	testenv.Root(t)
	if !testing.Short() {
		busy := setting.Number(t, "UNIFIEDD_LOAD", 4)
		before, client := suspect, perClient
		suspect, perClient = 500*time.Millisecond, 8*rate
		t.Cleanup(func() { suspect, perClient = before, client })
		t.Logf("beside %d busy processes, suspect %v", busy, suspect)
		burn(t, int(busy))
	}
	g := newMounted(t, seed)
	g.leader(-1, 0)
	results, kinds := map[string][]result{}, faults
	if only := os.Getenv("UNIFIEDD_FAULT"); only != "" { // a part of a name
		kinds = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !strings.Contains(f.name, only) })
	}
	for n := range count {
		f := &kinds[(n+seed)%uint64(len(kinds))]
		if g.client != nil {
			g.client.Await(t, limit) // the gap of each fault is of one client
		}
		results[f.name] = append(results[f.name], g.suffer(f))
	}
	g.client.Await(t, limit)
	g.equal()
	g.shown()
	for _, d := range g.now {
		d.Terminate(t)
	}
	g.compare()
	g.report(results)
}

// shorter returns the second number in the short form.
func shorter(long, short uint64) uint64 {
	if testing.Short() {
		return short
	}
	return long
}

// result is what a fault has led to.
type result struct {
	took   time.Duration // until another member led; 0: none did
	gap    time.Duration // the longest that the client saw; 0: none as long as gaps
	counts [countsOf]uint64
}

// suffer begins a fault, checks what becomes of the leader, and ends the fault when the client has gone on.
func (g *group) suffer(f *fault) (r result) {
	g.Helper()
	g.settled()
	g.progresses()
	time.Sleep(time.Duration(g.random.IntN(500)) * time.Millisecond)
	who, epoch := g.leader(-1, 0)
	g.readCommitted(g.random.IntN(members), who)
	before, seen := g.counts(), len(g.heardGaps())
	g.Logf("%s: member %d leads", f.name, who+1)
	began := time.Now()
	end := f.begin(g, who)
	switch f.then {
	case deposed:
		next, _ := g.leaderUnder(who, epoch) // a disk that is full harms nobody who appends nothing
		r.took = time.Since(began)
		g.Logf("member %d leads %v after member %d failed", next+1, r.took.Round(time.Millisecond), who+1)
	case goesOn:
		g.goesOn(who)
		time.Sleep(2 * time.Second)
		end()
		end = func() {}
	}
	g.progresses()
	if now, later := g.leader(-1, 0); f.then == goesOn && (now != who || later != epoch) { // on a busy machine a leader may be silent for as long as suspect
		r.took = time.Since(began)
		g.Logf("member %d leads epoch %d now", now+1, later)
	}
	end()
	g.settled()
	for _, gap := range g.heardGaps()[seen:] {
		r.gap = max(r.gap, gap)
	}
	for i, c := range g.counts() {
		for k, n := range c.values {
			if k == strays && i == who { // these are of clients and followers
				continue
			}
			if c.of == before[i].of && n >= before[i].values[k] { // else the daemon, or its device, is another one
				n -= before[i].values[k]
			}
			r.counts[k] += n
		}
	}
	g.Logf("the longest gap is %v; %v are %v", r.gap, countNames, r.counts)
	return r
}

// progresses waits until clients have appended under the newest leader.
func (g *group) progresses() {
	g.Helper()
	last, from := -1, uint64(0)
	testenv.Wait(g.T, testenv.Within(30*time.Second), "the client to go on", func() bool {
		g.load()
		who, _ := g.leader(-1, 0)
		s := g.status(who)
		if s == nil {
			return false
		}
		if who != last && s.State == "leading" {
			last, from = who, s.Last // all up to here may be from before
		}
		return who == last && s.Committed >= from+rate/10
	})
}

// goesOn waits until the client that is connected to the leader has appended more. On a busy machine it may have come to
// its end. Then another one is let in only after the fault, when a majority says that this member leads.
func (g *group) goesOn(leader int) {
	g.Helper()
	from := uint64(0)
	testenv.Wait(g.T, testenv.Within(30*time.Second), "the connected client to go on", func() bool {
		if g.client.Over() {
			g.Log("the client has come to its end: this fault shows nothing about it")
			return true
		}
		s := g.status(leader)
		if s != nil && from == 0 {
			from = s.Committed
		}
		return s != nil && s.Committed >= from+rate/10
	})
}

// settled waits until all members follow one leader, and have about as many records.
func (g *group) settled() {
	g.Helper()
	testenv.Wait(g.T, testenv.Within(60*time.Second), "all members to follow one leader", func() bool {
		leader, epoch, leading := "", uint64(0), 0
		for i := range members {
			s := g.status(i)
			switch {
			case s == nil || s.Leader == "" || s.Recovering:
				return false
			case leader == "":
				leader, epoch = s.Leader, s.Epoch
			case s.Leader != leader || s.Epoch != epoch:
				return false
			}
			if s.State == "leading" {
				leading++
			}
		}
		return leading == 1
	})
	g.together()
}

// equal waits until all members have all records, and know that these are committed. Clients append nothing.
func (g *group) equal() {
	g.Helper()
	g.settled()
	testenv.Wait(g.T, testenv.Within(60*time.Second), "all members to have all records", func() bool {
		at := map[uint64]bool{}
		for i := range members {
			s := g.status(i)
			if s == nil || s.Committed != s.Last {
				return false
			}
			at[s.Last] = true
		}
		return len(at) == 1
	})
}

// status returns what a member says about its group; nil: nothing now.
func (g *group) status(i int) *status.Group {
	s, err := g.now[i].Status()
	if err != nil || len(s.Flows) != 1 {
		return nil
	}
	return s.Flows[0].Group
}

var gapLine = regexp.MustCompile(`no acknowledgement for ([0-9.]+) ms`)

// heardGaps returns the gaps that all clients have printed so far.
func (g *group) heardGaps() (all []time.Duration) {
	text := g.said
	if g.client != nil {
		text += g.client.Out.String()
	}
	for _, m := range gapLine.FindAllStringSubmatch(text, -1) {
		ms, _ := strconv.ParseFloat(m[1], 64) // the expression admits numbers only
		all = append(all, time.Duration(ms*float64(time.Millisecond)))
	}
	return all
}

// The counts of members that a test adds up.
const (
	fenced = iota // records of a leader that nobody else had
	cut           // records of it that were cut off
	stale         // messages of links that had ended
	strays        // packets for queue pairs that had ended, dropped by the devices of the other members
	countsOf
)

var countNames = [countsOf]string{"fenced records", "cut records", "stale messages", "packets for ended queue pairs"}

var countLines = [countsOf]*regexp.Regexp{
	regexp.MustCompile(`(?m)^unifiedd_group_fenced_records_total{.*} (\d+)$`),
	regexp.MustCompile(`(?m)^unifiedd_group_cut_records_total{.*} (\d+)$`),
	regexp.MustCompile(`(?m)^unifiedd_group_ignored_messages_total{.*"stale_epoch".*} (\d+)$`),
	regexp.MustCompile(`(?m)^unifiedd_rdma_roce_dropped_(?:unknown_queue_pair|wrong_state)_total{.*} (\d+)$`),
}

// counted is what a daemon's metrics count.
type counted struct {
	of     any // the daemon
	values [countsOf]uint64
}

// counts reads the metrics of all members.
func (g *group) counts() (all [members]counted) {
	g.Helper()
	for i, d := range g.now {
		testenv.Wait(g.T, testenv.Within(30*time.Second), "all metrics", func() bool { // a flow may just begin again
			page, err := d.Page("/metrics")
			all[i] = counted{of: d}
			return err == nil && all[i].read(page)
		})
	}
	return all
}

// read reads a page of metrics. It reports whether all counts are there.
func (c *counted) read(page string) bool {
	for k, line := range countLines {
		found := line.FindAllStringSubmatch(page, -1)
		if found == nil {
			return false
		}
		for _, m := range found {
			n, _ := strconv.ParseUint(m[1], 10, 64) // the expression admits numbers only
			c.values[k] += n
		}
	}
	return true
}

// report prints figures by kind of fault, and checks that records of resumed leaders were refused.
func (g *group) report(results map[string][]result) {
	g.Helper()
	for _, f := range faults {
		all := results[f.name]
		if len(all) == 0 {
			continue
		}
		var took, gap []time.Duration
		var sums [countsOf]uint64
		for _, r := range all {
			gap = append(gap, r.gap)
			if r.took > 0 {
				took = append(took, r.took)
			}
			for k, n := range r.counts {
				sums[k] += n
			}
		}
		g.Logf("%-38s %2d times; next leader after %s; longest gap %s; %v: %v", f.name, len(all), spread(took), spread(gap), countNames, sums)
		// A single paused leader may have had nothing to append, and its links may have ended before it went on.
		if f.name == "SIGSTOP and resume" && len(all) >= 3 && (sums[fenced] == 0 || sums[strays] == 0) {
			g.Errorf("after %d pauses, %d records of the resumed leader are fenced, and its followers have dropped %d packets", len(all), sums[fenced], sums[strays])
		}
	}
}

// spread describes times: the median and the longest.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return fmt.Sprintf("%v (%v at most)", all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
}
