package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

const (
	// missing is how many records a member lacks without UNIFIEDD_RECORDS, and fewMissing in the short form.
	missing, fewMissing = 20000, 5000
	// asMany is the number of records from which on the rate is checked. With fewer, the catch-up is over
	// before a rate can be measured.
	asMany = 1_000_000
	// leastRate is the least rate of the others while a member catches up, as a part of their rate afterwards.
	leastRate = 0.9
	// leastSpan is how long a rate is measured at least, and longSpan if it is checked: the rate of a disk changes from
	// one second to the next.
	leastSpan, longSpan = 3 * time.Second, time.Minute
	// caughtUp is how many records a member lacks at most that has caught up: some are in flight.
	caughtUp = 2000
)

// TestCatchUp: a member that was away gets the records that it lacks from a segment, beside a client that
// appends as fast as it can.
func TestCatchUp(t *testing.T) {
	testenv.Root(t)
	records := setting.Number(t, "UNIFIEDD_RECORDS", shorter(missing, fewMissing))
	least := leastSpan
	if testing.Short() {
		least /= 10
	}
	if records >= asMany {
		least = longSpan
	}
	r := newRoster(t, 3, 3, -1, soon)
	leader, epoch := r.leader(0)
	away := (leader + 1) % 3
	r.now[away].Kill()
	r.now[away] = nil
	e := r.ends[3]
	certificate, key := issue(t, r.secret, "client", e)
	var to []string
	for i := range 3 {
		to = append(to, r.ends[i].IP.String()+":7471")
	}
	client := daemon.StartClient(t, flowTest, e, "append", "-tls", strings.Join([]string{certificate, key, r.secret.File()}, ","), "-device", "roce:"+e.Ifname, "-ordinary", "-size", "64",
		"-to", strings.Join(to, ","), "-flow", "orders", "-count", fmt.Sprint(100*records), "-timeout", "3h")
	r.until(leader, records)
	alone, span := r.pace(leader, least, func(time.Duration, uint64) bool { return false })
	t.Logf("%.0f records a second with one member away, for %v", alone, span.Round(time.Millisecond))
	lacks := r.position(leader)
	began := time.Now()
	r.start(away)
	beside, _ := r.pace(leader, least, func(_ time.Duration, at uint64) bool { return r.position(away)+caughtUp < at })
	got := r.position(away)
	t.Logf("%d records were lacking, and the member has %d after %v; %.0f records a second beside", lacks, got, time.Since(began).Round(time.Millisecond), beside)
	// All members share this machine's processors, so a member that runs slows the others down whether it catches up or
	// not. The rate is compared with that of the same members when nobody catches up.
	after, _ := r.pace(leader, least, func(time.Duration, uint64) bool { return false })
	t.Logf("%.0f records a second with all members: catching up left the others %.2f of that, and %.2f of the rate with one member away", after, beside/after, beside/alone)
	if records >= asMany && beside < leastRate*after {
		t.Errorf("the others had %.2f of their rate, want %.2f", beside/after, leastRate)
	}
	if got+caughtUp < lacks {
		t.Errorf("the member has %d of %d records", got, lacks)
	}
	client.Kill()
	if _, now := r.leader(0); now != epoch {
		t.Logf("another leader was elected: epoch %d", now)
	}
	testenv.Wait(t, testenv.Within(time.Minute), "all members to have all records", func() bool {
		return r.position(0) == r.position(1) && r.position(1) == r.position(2)
	})
	for i, d := range r.now {
		d.Terminate(t)
		if out, err := r.ends[i].Command(program, "log", "verify", r.dirs[i]+"/orders").CombinedOutput(); err != nil {
			t.Errorf("verify the log of member %d: %v\n%s", i+1, err, out)
		}
	}
}

// position returns what a member says is committed; 0: it does not answer.
func (r *roster) position(i int) uint64 {
	s, err := r.now[i].Status()
	if err != nil || len(s.Flows) != 1 || s.Flows[0].Group == nil {
		return 0
	}
	return s.Flows[0].Group.Committed
}

// until waits until a member has committed some records, however long that takes.
func (r *roster) until(i int, records uint64) {
	r.Helper()
	for last, since := uint64(0), time.Now(); ; time.Sleep(20 * time.Millisecond) {
		at := r.position(i)
		if at >= records {
			return
		}
		if at > last {
			last, since = at, time.Now()
		}
		if time.Since(since) > testenv.Within(30*time.Second) {
			r.Fatalf("nothing is committed after position %d", at)
		}
	}
}

// pace returns how many records a second a member commits, over a time at least and for as long as more says.
func (r *roster) pace(i int, least time.Duration, more func(time.Duration, uint64) bool) (perSecond float64, span time.Duration) {
	r.Helper()
	from, began := r.position(i), time.Now()
	for {
		time.Sleep(100 * time.Millisecond)
		at, span := r.position(i), time.Since(began)
		if span > least && !more(span, at) {
			return float64(at-from) / span.Seconds(), span
		}
		if span > 30*time.Minute {
			r.Fatalf("after %v the member has not caught up", span)
		}
	}
}
