package flow

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

const (
	suspect = 100 * time.Millisecond
	// appendRate is how many records a second the client appends.
	appendRate = 2000
	// shortestGap is the shortest time without acknowledgements that the client tells.
	shortestGap = 2 * time.Millisecond
	// steady is for how long nothing happens before a fault.
	steady = time.Second
	// barBesideDetection is the most that a gap may take beside detection, on a machine that does nothing
	// else. barGap is the most that it may take anywhere.
	barBesideDetection = 10 * time.Millisecond
	barGap             = 3 * suspect
)

// faults returns how many kills and how many stops there are.
func faults(f bench.Form) int {
	switch f {
	case bench.Short:
		return 1
	case bench.Long:
		return 50
	}
	return 5
}

// TestAgainstGroupFailOver measures for how long a client gets no acknowledgements when the leader is
// killed, and when it is stopped and later resumed.
func TestAgainstGroupFailOver(t *testing.T) {
	b := newGroupBed(t)
	n := faults(b.form)
	r := bench.NewTimes("Longest time without acknowledgements")
	r.NoteLoad("before")
	for _, durability := range []string{"durable", "received"} {
		if b.cases.MatchString(durability) && (b.form != bench.Short || durability == "durable") {
			b.failOvers(r, durability, n)
		}
	}
	r.NoteLoad("after")
	r.Notes = append(r.Notes,
		fmt.Sprintf("Three daemons and a client, which appends %d records of 64 bytes a second; suspect: %v. %d kills (SIGKILL) and %d stops (SIGSTOP, and SIGCONT after %v) of the leader, in turn; %s form.", appendRate, suspect, n, n, stopped, b.form.Name),
		"Detection ends when a follower logs that the leader is silent, to a millisecond. The return is from when the member is started or resumed until it has what the others have.",
		"Steady: the second before each fault, for comparison. Such times are of the machine, not of a fault.")
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "group-failover"))
}

// stopped is for how long a leader is stopped.
const stopped = time.Second

// gaps are the times that a client measures.
type gaps struct {
	mu  sync.Mutex
	all []gap
}

// gap is a time without acknowledgements.
type gap struct{ begin, end time.Time }

// read reads what the client says.
func (g *gaps) read(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 3 || f[0] != "gap" {
			continue
		}
		at, err1 := strconv.ParseInt(f[1], 10, 64)
		took, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 == nil && err2 == nil {
			g.mu.Lock()
			g.all = append(g.all, gap{time.Unix(0, at), time.Unix(0, at+took)})
			g.mu.Unlock()
		}
	}
}

// longest returns the longest gap of those that overlap a time.
func (g *gaps) longest(from, to time.Time) (most gap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		if one.end.After(from) && one.begin.Before(to) && one.end.Sub(one.begin) > most.end.Sub(most.begin) {
			most = one
		}
	}
	return most
}

// failOver is one fault.
type failOver struct {
	began, over  time.Time // the fault, and when another member led
	healed, done time.Time // the member came back, and had what the others have
	detected     time.Time // zero: not known
}

// failOvers adds the times of n kills and n stops.
func (b *groupBed) failOvers(r *bench.Times, durability string, n int) {
	b.Helper()
	g, err := b.newGroup(members, appends{64, durability}, fmt.Sprintf("        suspect: %v\n", suspect))
	b.must(err)
	defer func() { b.must(g.end()) }()
	who, epoch, err := g.leader(0)
	b.must(err)
	heard := new(gaps)
	client := b.appendSteadily(g, heard)
	var found [2][]failOver
	for i := range 2 * n {
		time.Sleep(steady)
		f, err := g.fail(who, epoch, i%2 == 1)
		b.must(err)
		found[i%2] = append(found[i%2], f)
		who, epoch, err = g.leader(epoch)
		b.must(err)
	}
	time.Sleep(steady)
	client()
	for i, what := range []string{"kill", "stop"} {
		b.addGaps(r, durability+", "+what, found[i], heard)
	}
}

// appendSteadily starts a client. The returned function ends it, which it must have survived until then.
func (b *groupBed) appendSteadily(g *runningGroup, heard *gaps) (end func()) {
	b.Helper()
	args := g.load("-depth", "64", "-rate", fmt.Sprint(appendRate), "-for", "2h", "-gap", shortestGap.String())
	c := urgent(b.client, b.program["unified-flow-test"], args...)
	said, err := c.StderrPipe()
	b.must(err)
	b.must(c.Start())
	ended := make(chan error, 1)
	var text output
	go func() {
		heard.read(io.TeeReader(said, &text))
		ended <- c.Wait()
	}()
	b.Cleanup(func() { _ = c.Process.Kill() })
	testenv.Wait(b.T, testenv.Within(20*time.Second), "the client to append", func() bool { return strings.Contains(text.String(), "measuring") })
	return func() {
		b.Helper()
		select {
		case err := <-ended:
			b.Fatalf("the client has ended: %v\n%s", err, &text)
		default:
		}
		_ = c.Process.Kill()
		<-ended
	}
}

// fail has the leader of an epoch fail, and come back.
func (g *runningGroup) fail(who int, epoch uint64, stop bool) (f failOver, err error) {
	s, err := g.now[who].status()
	if err != nil {
		return f, err
	}
	pid, signal := s.PID, syscall.SIGKILL
	if stop {
		signal = syscall.SIGSTOP
	}
	f.began = time.Now()
	if err := syscall.Kill(pid, signal); err != nil {
		return f, err
	}
	defer func() {
		if err != nil {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		}
	}()
	if f.over, err = g.succeeded(who, epoch); err != nil {
		return f, err
	}
	f.detected = g.detected(who, f.began)
	if stop {
		time.Sleep(time.Until(f.began.Add(stopped)))
		f.healed = time.Now()
		err = syscall.Kill(pid, syscall.SIGCONT)
	} else {
		<-g.now[who].ended
		g.now[who] = nil
		time.Sleep(time.Until(f.began.Add(stopped)))
		f.healed = time.Now()
		err = g.start(who)
	}
	if err == nil {
		_, _, err = g.leader(epoch)
	}
	f.done = time.Now()
	return f, err
}

// succeeded waits until another member leads, and returns when.
func (g *runningGroup) succeeded(who int, epoch uint64) (time.Time, error) {
	for end := time.Now().Add(testenv.Within(30 * time.Second)); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for i, d := range g.now {
			if i == who {
				continue
			}
			for _, m := range leads.FindAllStringSubmatch(d.said.String(), -1) {
				if n, err := strconv.ParseUint(m[1], 10, 64); err == nil && n > epoch {
					return time.Now(), nil
				}
			}
		}
	}
	return time.Time{}, errors.New("no other member leads")
}

var (
	leads  = regexp.MustCompile(`this member leads the group" .*epoch=(\d+)`)
	silent = regexp.MustCompile(`time=(\S+) .*the group's leader is silent"`)
)

// detected returns when the first of the other members found that the leader was silent.
func (g *runningGroup) detected(who int, after time.Time) (first time.Time) {
	for i, d := range g.now {
		if i == who {
			continue
		}
		for _, m := range silent.FindAllStringSubmatch(d.said.String(), -1) {
			at, err := time.Parse(time.RFC3339Nano, m[1])
			if err == nil && !at.Before(after.Truncate(time.Millisecond)) && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// addGaps adds the longest gaps of some faults to a report.
func (b *groupBed) addGaps(r *bench.Times, name string, all []failOver, heard *gaps) {
	b.Helper()
	var whole, detection, beside, back, before latency.Shared
	within, most := 0, time.Duration(0)
	for _, f := range all {
		g := heard.longest(f.began, f.healed)
		took := g.end.Sub(g.begin)
		if took == 0 {
			b.Fatalf("%s: the client got acknowledgements all the time", name)
		}
		whole.Record(uint64(took))
		last := heard.longest(f.healed, f.done)
		back.Record(uint64(max(shortestGap, last.end.Sub(last.begin))))
		calm := heard.longest(f.began.Add(-steady), f.began.Add(-10*time.Millisecond))
		if calm != g {
			before.Record(uint64(max(shortestGap, calm.end.Sub(calm.begin))))
		}
		most = max(most, took, last.end.Sub(last.begin))
		if f.detected.IsZero() {
			continue
		}
		known := max(0, f.detected.Sub(g.begin))
		detection.Record(uint64(known))
		beside.Record(uint64(max(0, took-known)))
		if took-known <= barBesideDetection {
			within++
		}
	}
	for _, line := range []struct {
		what  string
		times *latency.Shared
	}{{"whole", &whole}, {"until it is detected", &detection}, {"after that", &beside}, {"the return", &back}, {"steady", &before}} {
		if d := line.times.Distribution(); d != nil && d.Count > 0 {
			b.must(r.Add(name+": "+line.what, d))
		}
	}
	verdict := "met"
	if most > barGap {
		verdict = "missed"
	}
	r.Notes = append(r.Notes, fmt.Sprintf("%s: %d of %d took at most %v after they were detected; the longest took %v, at most %v: %s.", name, within, len(all), barBesideDetection, most.Round(100*time.Microsecond), barGap, verdict))
}
