package group

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

const (
	// fewFaults is how many faults there are at each level without UNIFIEDD_HISTORIES.
	fewFaults = 2
	// hosts is how many programs append. Each has appenders with these depths, which append as many messages
	// each, and as many a second. A program that is done is followed by another one.
	hosts               = 2
	appends, appendRate = 100, 50
	// porcupineLimit is long enough for a slow machine. A check that takes longer is a failure.
	porcupineLimit = 2 * time.Minute
)

var depths = []int{1, 1, 8}

// TestHistories: clients append and readers read while members and clients fail, at each level of
// durability. Type history says what must be true.
func TestHistories(t *testing.T) {
	testenv.Root(t)
	faults, seed := setting.Number(t, "UNIFIEDD_HISTORIES", fewFaults), setting.Seed(t)
	t.Logf("UNIFIEDD_HISTORIES=%d", faults)
	for _, level := range []string{"received", "written", "durable"} {
		t.Run(level, func(t *testing.T) {
			if level != "durable" {
				testenv.Long(t, "the level durable has the most failures")
			}
			g := newGroupOf(t, seed, level, hosts)
			(&recorder{group: g, dir: t.TempDir(), programs: make([]*daemon.Client, hosts)}).run(faults)
		})
	}
}

// recorder makes a history of a group.
type recorder struct {
	*group
	dir      string
	programs []*daemon.Client // by host
	killed   []bool           // by host: the program was killed

	mu    sync.Mutex
	files []string // histories of the appenders, by seed - 1
	asks  string   // the newest of an appender with depth 1
}

// run makes a history with faults and checks it.
func (r *recorder) run(faults uint64) {
	r.leader(-1, 0)
	r.settled(appends)
	var paths []string
	for i := range members {
		paths = append(paths, r.path(i))
	}
	r.killed = make([]bool, hosts)
	for host := range hosts {
		r.append(host)
	}
	readers := startReaders(paths, r.asking, r.random)
	r.Cleanup(func() { _, _ = readers.end() })
	var plan []failure
	for n := range faults {
		if len(plan) == 0 {
			plan = r.plan(n == 0)
		}
		r.settled(appends)
		time.Sleep(time.Duration(r.random.IntN(400)) * time.Millisecond)
		r.inject(plan[0])
		plan = plan[1:]
		for host := range hosts {
			r.append(host)
		}
	}
	for host := range hosts {
		r.await(host)
	}
	r.settled(0)
	time.Sleep(200 * time.Millisecond) // for reads of the whole log
	reads, err := readers.end()
	if err != nil {
		r.Error(err)
	}
	for _, d := range r.now {
		d.Terminate(r.T)
	}
	r.check(r.history(reads))
}

// asking returns the history file of an appender that sends one message at a time.
func (r *recorder) asking() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asks
}

// append starts the appenders of a host unless they run.
func (r *recorder) append(host int) {
	r.Helper()
	if c := r.programs[host]; c != nil && !c.Over() {
		return
	}
	r.await(host)
	e := r.ends[members+host]
	certificate, key := r.issue("client", members+host)
	var to []string
	for i := range members {
		to = append(to, r.ends[i].IP.String()+":7471")
	}
	args := []string{"append", "-tls", strings.Join([]string{certificate, key, r.secret.File()}, ","), "-device", "roce:" + e.Ifname, "-ordinary", "-receive-ring", "512"}
	r.mu.Lock()
	for n, depth := range depths {
		if n > 0 {
			args = append(args, "+", "append")
		}
		file := filepath.Join(r.dir, fmt.Sprintf("appends-%d", len(r.files)+1))
		r.files = append(r.files, file)
		args = append(args, "-to", strings.Join(to, ","), "-flow", "orders", "-count", fmt.Sprint(appends), "-rate", fmt.Sprint(appendRate), "-depth", fmt.Sprint(depth), "-size", "64",
			"-seed", fmt.Sprint(len(r.files)), "-timeout", "20m", "-history", file)
	}
	r.mu.Unlock()
	r.programs[host] = daemon.StartClient(r.T, flowTest, e, args...)
	first := r.files[len(r.files)-len(depths)]
	testenv.Wait(r.T, testenv.Within(60*time.Second), "a client to append", func() bool {
		all, err := parseHistory(first, 0)
		return err == nil && len(all) > 0 || r.programs[host].Over()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks = first
}

// await waits until the appenders of a host have appended everything.
func (r *recorder) await(host int) {
	r.Helper()
	if c := r.programs[host]; c != nil && !r.killed[host] {
		c.Await(r.T, limit)
	}
	r.programs[host], r.killed[host] = nil, false
}

// history puts together what was seen, with the log of the first member. The others must have the same.
func (r *recorder) history(reads []reading) *history {
	h := &history{reads: reads}
	var files [][]appended
	for i, name := range r.files {
		all, err := parseHistory(name, uint64(i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a client was killed before it sent anything
			r.Fatal(err)
		}
		files = append(files, all)
	}
	sessions := make([]uint64, len(files))
	for i := range members {
		log, err := r.log(i, sessions)
		if err != nil {
			r.Errorf("the log of member %d: %v", i+1, err)
		}
		if i == 0 {
			h.log = log
		}
		if !slices.Equal(log, h.log) {
			r.Errorf("the log of member %d differs from that of member 1: %s", i+1, difference(log, h.log))
		}
	}
	for i, all := range files {
		for _, a := range all {
			if sessions[i] != 0 { // else the log has nothing of it
				a.session = sessions[i]
			}
			h.appends = append(h.appends, a)
		}
	}
	return h
}

// log reads a member's log, verifies each byte, and finds out which appender has which session.
func (r *recorder) log(i int, sessions []uint64) (all []record, err error) {
	l, err := journal.Open(r.path(i))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	from := l.Reader(0)
	defer func() { err = errors.Join(err, from.Close()) }()
	for {
		m, err := from.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if m.Control() {
			continue
		}
		n := slices.Index(sessions, m.Session)
		if n < 0 {
			n = slices.IndexFunc(sessions, func(s uint64) bool { return s == 0 })
			for n >= 0 && n < len(sessions) && (sessions[n] != 0 || harness.Differs(m.Payload, uint64(n+1), m.Sequence) >= 0) {
				n++
			}
		}
		if n < 0 || n == len(sessions) || len(m.Payload) != 64 || harness.Differs(m.Payload, uint64(n+1), m.Sequence) >= 0 {
			return all, fmt.Errorf("position %d has what no client has sent as message %d of session %x", m.Position, m.Sequence, m.Session)
		}
		sessions[n] = m.Session
		all = append(all, record{m.Position, id{m.Session, m.Sequence}})
	}
}

// check checks the history and logs what is in it.
func (r *recorder) check(h *history) {
	began := time.Now()
	for _, check := range []func() error{h.checkAppends, h.checkReads, func() error { return h.checkLinearizable(testenv.Within(porcupineLimit)) }} {
		if err := check(); err != nil {
			r.Error(err)
		}
	}
	r.Logf("%s: %s; checked in %v", r.level, h, time.Since(began).Round(time.Millisecond))
}

// settled waits until all members have all records but a few, and can count again after a crash.
func (r *recorder) settled(few uint64) {
	r.Helper()
	began, explained := time.Now(), false
	testenv.Wait(r.T, testenv.Within(60*time.Second), "all members to have the newest records", func() bool {
		if !explained && time.Since(began) > explainAfter {
			explained = true
			r.explain()
		}
		least, most := uint64(1<<63), uint64(0)
		for _, d := range r.now {
			s, err := d.Status()
			if err != nil || len(s.Flows) != 1 || s.Flows[0].Group == nil || s.Flows[0].Group.Recovering {
				return false
			}
			least, most = min(least, s.Flows[0].Group.Committed), max(most, s.Flows[0].Group.Last)
		}
		return most > 0 && most-min(most, least) <= few
	})
}

// explainAfter is how long members may take to come together before the test logs what they say.
const explainAfter = 10 * time.Second

// explain logs what the members say.
func (r *recorder) explain() {
	r.Logf("the members are not together yet:")
	for i, d := range r.now {
		s, err := d.Status()
		if err == nil && len(s.Flows) == 1 && s.Flows[0].Group != nil {
			r.Logf("member %d: %+v", i+1, *s.Flows[0].Group)
		} else {
			r.Logf("member %d: %+v, %v", i+1, s, err)
		}
		lines := strings.SplitAfter(r.logs[i]+d.Log.String(), "\n")
		r.Logf("%s", strings.Join(lines[max(0, len(lines)-40):], ""))
		last, err := readable(r.path(i))
		r.Logf("its log can be read up to record %d: %v", last, err)
		now, err := d.Goroutines()
		r.Logf("its goroutines: %v\n%s", err, now)
	}
}

// readable returns the last position up to which a log can be read, and why not further. io.EOF means that it
// ends there for now.
func readable(path string) (last uint64, err error) {
	l, err := journal.Open(path)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	reader := l.Uncommitted(0)
	defer reader.Close()
	for {
		record, err := reader.Poll()
		if err != nil {
			return last, err
		}
		last = record.Position
	}
}
