package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// members is how many daemons a group has, and how many servers etcd.
const members = 3

// The bars: the most that an append may take of what it takes without replication, and of a put to etcd.
const (
	barReplicated = 2.0
	barEtcd       = 0.1
)

// groups is the machinery: a namespace for each member and one for the client, on one switch.
type groups struct {
	*bench.Report
	ends                     []*testenv.End
	client                   *testenv.End
	unifiedd, flowTest, etcd string // paths of programs
	dir                      string // on a disk
}

// appends is the work of a case: one client that appends one record at a time.
type appends struct {
	size       int // bytes
	durability string
}

// sample is the result of one run: times from sending a record until its acknowledgement, in microseconds.
type sample struct{ p50, p99 float64 }

// TestAgainstGroup compares an append to a group of three daemons with one to a log on one machine, and
// with a put to three etcd servers, which flush each put. All are on the same links and the same disk.
func TestAgainstGroup(t *testing.T) {
	r := bench.Start(t, "group", "Groups", "three daemons", "one daemon, or three etcd servers")
	all := testenv.NewSwitch(t, members+1, testenv.PairOptions{MTU: 4200})
	b := &groups{r, all[:members], all[members], testenv.Program(t, "cmd/unifiedd"), testenv.Program(t, "selftests/unified-flow-test"), buildEtcd(t), testenv.DiskDir(t)}
	for _, durability := range []string{"received", "written", "durable"} {
		for _, size := range []int{64, 256, 1024, 4096} {
			bench.Compare(r, b.contest(appends{size, durability}))
		}
	}
	r.Finish(
		fmt.Sprintf("In turn, fresh processes for each run of %v, one record at a time.", r.Form.Span),
		"Each daemon, server and client has a network namespace, and all have one switch (a bridge over veth) and one disk. RoCE in software, and TCP for etcd.",
		"The client polls for 50 µs, and then sleeps for as long between polls. Nothing is pinned to a processor. All have the priority of nice -20.",
		"etcd: its client is connected to the server that leads, and puts each value under a new key.")
}

// buildEtcd builds etcd's server and its client, which are in a module of their own.
func buildEtcd(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd-peer")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = bench.Path(t, "selftests/peers/etcd-peer")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build etcd-peer: %v\n%s", err, out)
	}
	return path
}

// contest compares the programs that do a work. etcd can only do what is durable.
func (b *groups) contest(w appends) *bench.Contest[sample] {
	p50 := func(s sample) float64 { return s.p50 }
	p99 := func(s sample) float64 { return s.p99 }
	c := &bench.Contest[sample]{Name: fmt.Sprintf("%s, %d B", w.durability, w.size), Programs: []bench.Run[sample]{
		func(context.Context) (sample, error) { return b.daemons(w, members) },
		func(context.Context) (sample, error) { return b.daemons(w, 1) },
	}, Measures: []bench.Measure[sample]{
		{Metric: "median; one daemon", Unit: "µs", Better: bench.Less, Bar: barReplicated, Theirs: 1, Of: p50},
		{Metric: "99%; one daemon", Unit: "µs", Better: bench.Less, Theirs: 1, Of: p99},
	}}
	if w.durability == "durable" {
		c.Programs = append(c.Programs, func(ctx context.Context) (sample, error) { return b.puts(ctx, w) })
		c.Measures = append(c.Measures,
			bench.Measure[sample]{Metric: "median; etcd", Unit: "µs", Better: bench.Less, Bar: barEtcd, Theirs: 2, Of: p50},
			bench.Measure[sample]{Metric: "99%; etcd", Unit: "µs", Better: bench.Less, Theirs: 2, Of: p99})
	}
	return c
}

// urgent is an end whose programs have a higher priority than other programs on the machine.
type urgent struct{ *testenv.End }

// Command is exec.Command.
func (u urgent) Command(name string, args ...string) *exec.Cmd {
	return u.End.Command("nice", append([]string{"-n", "-20", name}, args...)...)
}

// daemons measures appends to a log on n machines.
func (b *groups) daemons(w appends, n int) (s sample, err error) {
	dir, err := os.MkdirTemp(b.dir, "group-")
	if err != nil {
		return s, err
	}
	var all []*daemon.Daemon
	var to []string
	for i := range n {
		at := filepath.Join(dir, fmt.Sprint(i))
		b.Must(os.Mkdir(at, 0o755))
		all = append(all, daemon.Launch(b.T, b.unifiedd, urgent{b.ends[i]}, at, b.config(i, n, at, w)))
		to = append(to, b.ends[i].IP.String()+":7471")
	}
	for _, d := range all {
		d.Running(b.T)
	}
	if n > 1 {
		b.awaitLeader(all)
	}
	s, err = b.ask(b.flowTest, "load", "-device", "roce:"+b.client.Ifname, "-ordinary", "-receive-ring", "512", "-to", strings.Join(to, ","), "-flow", "orders",
		"-extents", fmt.Sprint(min(16, w.size/1024*4)), "-size", fmt.Sprint(w.size), "-timeout", "2h", "-json", "-depth", "1")
	for _, d := range all {
		d.Terminate(b.T)
	}
	return s, errors.Join(err, os.RemoveAll(dir))
}

// awaitLeader waits until a member leads, and all members have what it had then.
func (b *groups) awaitLeader(all []*daemon.Daemon) {
	b.Helper()
	var led uint64
	for led == 0 {
		for _, d := range all {
			if s, err := d.Status(); err == nil && s.Flows[0].Group.State == "leading" {
				led = s.Flows[0].Group.Committed
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, d := range all {
		d.Until(b.T, "the leader's records", func(s *status.Daemon) bool { return s.Flows[0].Group.Committed >= led })
	}
}

// config is the configuration of a member. A record of 4096 bytes lands in an extent.
func (b *groups) config(i, n int, dir string, w appends) string {
	e, region := b.ends[i], "size: 96MiB"
	if w.size > 3072 {
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
`, region, e.Ifname, e.IP, (w.size+1023)/1024, dir, w.durability)
	if n == 1 {
		return text
	}
	text += fmt.Sprintf("      group:\n        name: orders\n        self: m%d\n        members:\n", i)
	for k := range n {
		text += fmt.Sprintf("          - {name: m%d, address: \"%s:7491\", clients: \"%[2]s:7471\"}\n", k, b.ends[k].IP)
	}
	return text
}

// ask runs a client for the form's span, and parses its output.
func (b *groups) ask(program string, args ...string) (s sample, err error) {
	c := urgent{b.client}.Command(program, append(args, "-warm", (b.Form.Span/4).String(), "-for", b.Form.Span.String())...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return s, fmt.Errorf("the client: %w: %s", err, &said)
	}
	var r struct {
		Messages float64
		Latency  *latency.Summary `json:"latency_ns"`
	}
	if err := json.Unmarshal(out, &r); err != nil || r.Messages < 1 || r.Latency == nil {
		return s, fmt.Errorf("the client measured nothing: %s (%v)", out, err)
	}
	return sample{float64(r.Latency.P50) / 1e3, float64(r.Latency.P99) / 1e3}, nil
}

// puts measures puts to etcd.
func (b *groups) puts(ctx context.Context, w appends) (s sample, err error) {
	dir, err := os.MkdirTemp(b.dir, "etcd-")
	if err != nil {
		return s, err
	}
	var urls, peers, cluster []string
	for i, e := range b.ends {
		urls, peers = append(urls, fmt.Sprintf("http://%s:2379", e.IP)), append(peers, fmt.Sprintf("http://%s:2380", e.IP))
		cluster = append(cluster, fmt.Sprintf("e%d=%s", i, peers[i]))
	}
	ctx, cancel := context.WithCancel(ctx)
	var servers []*exec.Cmd
	var said [members]bytes.Buffer
	for i, e := range b.ends {
		c := urgent{e}.Command(b.etcd, "server", "--name", fmt.Sprintf("e%d", i), "--data-dir", filepath.Join(dir, fmt.Sprint(i)),
			"--listen-client-urls", urls[i], "--advertise-client-urls", urls[i], "--listen-peer-urls", peers[i],
			"--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(cluster, ","), "--log-level", "error")
		c.Stderr = &said[i]
		if err = c.Start(); err != nil {
			break
		}
		context.AfterFunc(ctx, func() { _ = c.Process.Kill() }) // what it has is removed
		servers = append(servers, c)
	}
	if err == nil {
		s, err = b.ask(b.etcd, "load", "-to", strings.Join(urls, ","), "-size", fmt.Sprint(w.size))
	}
	cancel()
	for _, c := range servers {
		_ = c.Wait() // it is killed
	}
	if err != nil {
		err = fmt.Errorf("etcd: %w\n%s", err, &said[0])
	}
	return s, errors.Join(err, os.RemoveAll(dir))
}
