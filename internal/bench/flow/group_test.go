package flow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// members is how many daemons a group has, and how many servers etcd.
const members = 3

// The bars: the most that an append may take of what it takes without replication, and of a put to etcd.
const (
	barReplicated = 2.0
	barEtcd       = 0.1
)

// groupBed is the machinery for groups: a namespace for each member and one for the client, on one
// switch.
type groupBed struct {
	*bed
	ends   []*testenv.End
	client *testenv.End
	etcd   string // path of etcd-peer
}

func newGroupBed(t *testing.T) *groupBed {
	t.Helper()
	testenv.Root(t)
	b := &groupBed{bed: &bed{T: t, dir: testenv.DiskDir(t), program: map[string]string{}}}
	var err error
	b.form, err = bench.WantedForm()
	b.must(err)
	b.cases, err = bench.WantedCases()
	b.must(err)
	all := testenv.NewSwitch(t, members+1, testenv.PairOptions{MTU: 4200})
	b.ends, b.client = all[:members], all[members]
	for _, name := range []string{"cmd/unifiedd", "selftests/unified-flow-test"} {
		b.program[filepath.Base(name)] = testenv.Build(t, name)
	}
	return b
}

// buildEtcd builds etcd's server and its client, which are in a module of their own.
func (b *groupBed) buildEtcd() {
	b.Helper()
	b.etcd = filepath.Join(b.TempDir(), "etcd-peer")
	build := exec.Command("go", "build", "-o", b.etcd, ".")
	build.Dir = filepath.Join("..", "..", "..", "selftests", "peers", "etcd-peer")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build etcd-peer: %v\n%s", err, out)
	}
}

// appends is the work of a case: one client that appends one record at a time.
type appends struct {
	size       int // bytes
	durability string
}

func (w appends) name() string { return fmt.Sprintf("%s, %d B", w.durability, w.size) }

// TestAgainstGroup compares an append to a group of three daemons with one to a log on one machine, and
// with a put to three etcd servers, which flush each put. All are on the same links and the same disk.
func TestAgainstGroup(t *testing.T) {
	b := newGroupBed(t)
	b.buildEtcd()
	r := bench.NewReport("Groups", "three daemons", "one daemon, or three etcd servers")
	r.NoteLoad("before")
	works := []appends{{64, "received"}, {4096, "durable"}}
	if b.form != bench.Short {
		works = nil
		for _, durability := range []string{"received", "written", "durable"} {
			for _, size := range []int{64, 256, 1024, 4096} {
				works = append(works, appends{size, durability})
			}
		}
	}
	for _, w := range works {
		if !b.cases.MatchString(w.name()) {
			continue
		}
		c := b.contest(w)
		b.must(c.Rounds(t.Context(), b.form.Rounds))
		r.Comparisons = append(r.Comparisons, c.Comparisons()...)
	}
	r.NoteLoad("after")
	r.Notes = append(r.Notes,
		fmt.Sprintf("%d rounds, in turn, fresh processes for each run of %v, one record at a time; %s form.", b.form.Rounds, b.form.Span, b.form.Name),
		"Each daemon, server and client has a network namespace, and all have one switch (a bridge over veth) and one disk. RoCE in software, and TCP for etcd.",
		"The client polls for 50 µs, and then sleeps for as long between polls. Nothing is pinned to a processor. All have the priority of nice -20.",
		"etcd: its client is connected to the server that leads, and puts each value under a new key.")
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "group"))
}

// contest compares the programs that do a work. etcd can only do what is durable.
func (b *groupBed) contest(w appends) *contest.Contest[replicated] {
	p50 := func(s replicated) float64 { return s.p50 }
	p99 := func(s replicated) float64 { return s.p99 }
	c := &contest.Contest[replicated]{Name: w.name(), Programs: []contest.Run[replicated]{
		func(context.Context) (replicated, error) { return b.daemons(w, members) },
		func(context.Context) (replicated, error) { return b.daemons(w, 1) },
	}, Measures: []contest.Measure[replicated]{
		{Metric: "median; one daemon", Unit: "µs", Better: bench.Less, Bar: barReplicated, Theirs: 1, Of: p50},
		{Metric: "99%; one daemon", Unit: "µs", Better: bench.Less, Theirs: 1, Of: p99},
	}}
	if w.durability == "durable" {
		c.Programs = append(c.Programs, func(ctx context.Context) (replicated, error) { return b.puts(ctx, w) })
		c.Measures = append(c.Measures,
			contest.Measure[replicated]{Metric: "median; etcd", Unit: "µs", Better: bench.Less, Bar: barEtcd, Theirs: 2, Of: p50},
			contest.Measure[replicated]{Metric: "99%; etcd", Unit: "µs", Better: bench.Less, Theirs: 2, Of: p99})
	}
	return c
}

// daemons measures appends to a log on n machines.
func (b *groupBed) daemons(w appends, n int) (s replicated, err error) {
	g, err := b.newGroup(n, w, "")
	if err == nil {
		_, _, err = g.leader(0)
	}
	if err == nil {
		var out []byte
		if out, err = b.answer(b.program["unified-flow-test"], g.load("-json", "-depth", "1", "-warm", (b.form.Span/4).String(), "-for", b.form.Span.String())); err == nil {
			err = s.read(out)
		}
	}
	return s, errors.Join(err, g.end())
}

// urgent is a program in the namespace of an end, with a higher priority than other programs on the
// machine.
func urgent(e *testenv.End, name string, args ...string) *exec.Cmd {
	return e.Command("nice", append([]string{"-n", "-20", name}, args...)...)
}

// answer runs a client and returns its output.
func (b *groupBed) answer(program string, args []string) ([]byte, error) {
	c := urgent(b.client, program, args...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("the client: %w: %s", err, &said)
	}
	return out, nil
}

// puts measures puts to etcd.
func (b *groupBed) puts(ctx context.Context, w appends) (s replicated, err error) {
	dir, err := os.MkdirTemp(b.dir, "etcd-")
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var urls, cluster []string
	for i, e := range b.ends {
		urls = append(urls, fmt.Sprintf("http://%s:2379", e.IP))
		cluster = append(cluster, fmt.Sprintf("e%d=http://%s:2380", i, e.IP))
	}
	var servers []*exec.Cmd
	var said [members]bytes.Buffer
	for i, e := range b.ends {
		c := urgent(e, b.etcd, "server", "--name", fmt.Sprintf("e%d", i), "--data-dir", filepath.Join(dir, fmt.Sprint(i)),
			"--listen-client-urls", urls[i], "--advertise-client-urls", urls[i], "--listen-peer-urls", strings.SplitN(cluster[i], "=", 2)[1],
			"--initial-advertise-peer-urls", strings.SplitN(cluster[i], "=", 2)[1], "--initial-cluster", strings.Join(cluster, ","), "--log-level", "error")
		c.Stderr = &said[i]
		if err = c.Start(); err != nil {
			break
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Process.Kill() })
		defer stop()
		servers = append(servers, c)
	}
	if err == nil {
		var out []byte
		if out, err = b.answer(b.etcd, []string{"load", "-to", strings.Join(urls, ","), "-size", fmt.Sprint(w.size), "-warm", (b.form.Span / 4).String(), "-for", b.form.Span.String()}); err == nil {
			err = s.read(out)
		}
	}
	cancel()
	for _, c := range servers {
		_ = c.Process.Kill() // what it has is removed
		_ = c.Wait()
	}
	if err != nil {
		err = fmt.Errorf("etcd: %w\n%s", err, &said[0])
	}
	return s, errors.Join(err, os.RemoveAll(dir))
}

// runningGroup is the daemons of a group, or one that keeps the log alone.
type runningGroup struct {
	*groupBed
	work    appends
	suspect string // further settings of the group
	n       int
	dir     string
	now     []*daemon
}

// newGroup starts n daemons. The caller calls end, also after an error.
func (b *groupBed) newGroup(n int, w appends, settings string) (g *runningGroup, err error) {
	g = &runningGroup{groupBed: b, work: w, n: n, suspect: settings, now: make([]*daemon, n)}
	if g.dir, err = os.MkdirTemp(b.dir, "group-"); err != nil {
		return g, err
	}
	for i := range n {
		if err = os.Mkdir(g.dirOf(i), 0o755); err == nil {
			err = g.start(i)
		}
		if err != nil {
			return g, err
		}
	}
	return g, nil
}

func (g *runningGroup) dirOf(i int) string { return filepath.Join(g.dir, fmt.Sprint(i)) }

// start starts a member.
func (g *runningGroup) start(i int) (err error) {
	e := g.ends[i]
	g.now[i], err = launch(g.program["unifiedd"], g.dirOf(i), "info", g.config(i), func(name string, args ...string) *exec.Cmd { return urgent(e, name, args...) })
	if err != nil {
		return fmt.Errorf("member %d: %w", i, err)
	}
	g.Cleanup(func() { _ = g.now[i].command.Process.Kill() })
	return nil
}

// config is the configuration of a member. A record of 4096 bytes lands in an extent.
func (g *runningGroup) config(i int) string {
	e, region := g.ends[i], "size: 96MiB"
	if g.work.size > 3072 {
		region = "size: 400MiB, extents: 720"
	}
	text := fmt.Sprintf(`
region: {%s, extent: 256KiB, pages: ordinary}
workers: [{name: main}]
flows:
  - name: orders
    from: {rdma: "roce:%s", listen: "%s:7471", message: %dKiB, clients: 2, window: 64}
    to:
      file: %s/orders
      acknowledge: %s
      segment: {size: 64MiB, keep: 2}
`, region, e.Ifname, e.IP, (g.work.size+1023)/1024, g.dirOf(i), g.work.durability)
	if g.n == 1 {
		return text
	}
	text += fmt.Sprintf("      group:\n        name: orders\n        self: m%d\n%s        members:\n", i, g.suspect)
	for k := range g.n {
		text += fmt.Sprintf("          - {name: m%d, address: \"%s:7491\", clients: \"%[2]s:7471\"}\n", k, g.ends[k].IP)
	}
	return text
}

// load returns the arguments of a client that appends.
func (g *runningGroup) load(more ...string) []string {
	var to []string
	for i := range g.n {
		to = append(to, g.ends[i].IP.String()+":7471")
	}
	return append([]string{"load", "-device", "roce:" + g.client.Ifname, "-ordinary", "-receive-ring", "512", "-to", strings.Join(to, ","), "-flow", "orders",
		"-extents", fmt.Sprint(min(16, g.work.size/1024*4)), "-size", fmt.Sprint(g.work.size), "-timeout", "2h"}, more...)
}

// describe returns the whole status of each member and the end of its log, for an error.
func (g *runningGroup) describe() string {
	var all strings.Builder
	for i, d := range g.now {
		out, err := exec.Command(d.program, "status", "--json", "--socket", d.socket).Output()
		lines := strings.Split(strings.TrimSpace(d.said.String()), "\n")
		fmt.Fprintf(&all, "\nmember %d: %s (%v)\n%s", i, out, err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	return all.String()
}

// leader waits until a member leads a later epoch than the given one, and all members have what one of
// them had a moment before. Without a group it is the only member.
func (g *runningGroup) leader(after uint64) (who int, epoch uint64, err error) {
	if g.n == 1 {
		return 0, 0, nil
	}
	before, seen := uint64(0), ""
	for end := time.Now().Add(testenv.Within(2 * time.Minute)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		who, seen = -1, fmt.Sprintf("%d records before", before)
		least, most := ^uint64(0), uint64(0)
		for i, d := range g.now {
			s, err := d.status()
			if err != nil || len(s.Flows) != 1 || s.Flows[0].Group == nil {
				least, seen = 0, fmt.Sprintf("%s; member %d: %+v, %v", seen, i, s.Flows, err)
				break
			}
			m := s.Flows[0].Group
			seen = fmt.Sprintf("%s; member %d: %+v", seen, i, *m)
			least, most = min(least, m.Committed), max(most, m.Committed)
			if m.State == "leading" && m.Epoch > after {
				who, epoch = i, m.Epoch
			}
		}
		if who >= 0 && before > 0 && least >= before {
			return who, epoch, nil
		}
		before = most
	}
	return 0, 0, fmt.Errorf("no member leads after epoch %d, or the others lack records: %s%s", after, seen, g.describe())
}

// end stops all members and removes their logs.
func (g *runningGroup) end() (err error) {
	for _, d := range g.now {
		if d != nil {
			err = errors.Join(err, d.stop())
		}
	}
	return errors.Join(err, os.RemoveAll(g.dir))
}
