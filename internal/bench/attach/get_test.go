package attach

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// barRead and barRedis are what a read of a state may take, of a bare READ and of Redis' GET.
const (
	barRead  = 1.15
	barRedis = 0.5
)

// states is two hosts with two links: a daemon has one, and what it is compared with the other.
type states struct {
	*machines
	daemon *daemon.Daemon
}

// stateKeys is the number of keys and objects.
const stateKeys = 1000

// TestAgainstGet compares reads of a state with bare READs of the same length over the same provider, and with GETs from
// Redis over the same kind of link.
func TestAgainstGet(t *testing.T) {
	s := &states{machines: newMachines(bench.Start(t, "get", "States", "a read of a state", "READ, or GET from Redis 7.0.15"), 50_000)}
	s.launch()
	s.redis()
	for _, one := range []struct {
		name, state string
		length      int // of the READ: an object's head and payload, or a bucket
		keys        int
	}{{"object of 336 B", "books", 352, 0}, {"key", "refs", 512, stateKeys}} {
		bench.Compare(s.Report, &bench.Contest[oneWay]{Name: one.name, Programs: []bench.Run[oneWay]{
			func(ctx context.Context) (oneWay, error) { return s.get(ctx, one.state, one.keys) },
			func(ctx context.Context) (oneWay, error) { return s.bareLatency(ctx, "read", one.length) },
			s.redisGet,
		}, Measures: append(measures("; READ", 1, barRead, 0), measures("; Redis", 2, barRedis, 0)...)})
	}
	s.Finish(
		fmt.Sprintf("In turn, fresh processes for each run of %d reads, one at a time. RoCE in software on a veth pair, and TCP on another one for Redis, whose values have 64 bytes.", s.count),
		"A read of a key READs one bucket of 512 bytes, and if the key is not there its two buckets in one batch. The bare READ is unified-rdma-test. All readers of RDMA poll, and so do both servers; the daemon is stopped while others are measured.")
}

// launch starts a daemon with two states, and fills them.
func (s *states) launch() {
	s.Helper()
	dir := s.TempDir()
	d := daemon.Launch(s.T, testenv.Program(s, "cmd/unifiedd"), &s.link.B, dir, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main, wait: sleep}, {name: states, wait: spin}]
attach:
  socket: %s/attach.sock
  programs: [{name: writer, user: "%d", out: 2MiB}]
  states:
    - {name: books, objects: %[3]d, room: 336, rdma: "roce:%[4]s", listen: "%[5]s:7473", worker: states}
    - {name: refs, keys: %[3]d, rdma: "roce:%[4]s", listen: "%[5]s:7474", worker: states}
flows:
  - {name: books, from: {attach: writer, message: 512}, to: {state: books}, worker: main}
  - {name: refs, from: {attach: writer, message: 512}, to: {state: refs}, worker: main}
`, dir, os.Getuid(), stateKeys, s.link.B.Ifname, s.link.B.IP))
	d.Until(s.T, "the flows to run", func(s *status.Daemon) bool { return len(s.Flows) == 2 && s.Flows[1].State == "running" })
	fill := func(flow, size, what string) {
		s.link.B.Run(s.T, s.flowTest, "state", "-socket", filepath.Join(dir, "attach.sock"), "-as", "writer", "-writes", flow,
			"-size", size, "-count", fmt.Sprint(2*stateKeys), what, fmt.Sprint(stateKeys))
	}
	fill("books", "336", "-objects")
	fill("refs", "64", "-keys")
	d.Pause(s.T)
	s.daemon = d
}

// get measures reads of a state.
func (s *states) get(_ context.Context, state string, keys int) (oneWay, error) {
	port := map[string]string{"books": "7473", "refs": "7474"}[state]
	s.daemon.Resume(s.T)
	defer s.daemon.Pause(s.T)
	out, err := s.link.A.Command(s.flowTest, "get", "-device", "roce:"+s.link.A.Ifname, "-ordinary", "-from", s.link.B.IP.String()+":"+port, "-reads", state,
		"-count", fmt.Sprint(s.count), "-keys", fmt.Sprint(keys), "-objects", fmt.Sprint(stateKeys), "-spin", "-json").Output()
	if err != nil {
		return oneWay{}, fmt.Errorf("unified-flow-test get: %w: %s", err, stderrOf(err))
	}
	return latencyOf(out)
}

// redis starts Redis with a value for each key.
func (s *states) redis() {
	s.Helper()
	program, libraries := bench.Unpacked(s, "usr/bin/redis-server")
	server := s.bare.B.Command(program, "--bind", s.bare.B.IP.String(), "--protected-mode", "no",
		"--save", "", "--appendonly", "no", "--dir", s.TempDir())
	server.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
	said := new(daemon.Log)
	server.Stdout, server.Stderr = said, said
	testenv.Mustf(s, server.Start(), "start Redis")
	s.Cleanup(func() {
		_ = server.Process.Kill() // it runs until then
		_ = server.Wait()         // it is killed
	})
	testenv.Wait(s.T, testenv.Within(20*time.Second), "Redis to be ready", func() bool { return strings.Contains(said.String(), "Ready to accept") })
	if out, err := s.benchmark("set", 10*stateKeys).CombinedOutput(); err != nil {
		s.Fatalf("fill Redis: %v\n%s", err, out)
	}
}

// benchmark is a command of redis-benchmark, for one connection and one request at a time.
func (s *states) benchmark(test string, count int) *exec.Cmd {
	program, libraries := bench.Unpacked(s, "usr/bin/redis-benchmark")
	c := s.bare.A.Command(program, "-h", s.bare.B.IP.String(), "-t", test, "-n", fmt.Sprint(count),
		"-c", "1", "-d", "64", "-r", fmt.Sprint(stateKeys), "--precision", "3", "--csv")
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
	return c
}

// redisGet measures GETs.
func (s *states) redisGet(context.Context) (r oneWay, err error) {
	out, err := s.benchmark("get", s.count).Output()
	if err != nil {
		return r, fmt.Errorf("redis-benchmark: %w: %s", err, stderrOf(err))
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) != 2 || len(rows[0]) != len(rows[1]) {
		return r, fmt.Errorf("redis-benchmark says: %s (%v)", out, err)
	}
	for i, name := range rows[0] {
		ms, err := strconv.ParseFloat(rows[1][i], 64)
		switch {
		case name == "p50_latency_ms" && err == nil:
			r.p50 = 1e6 * ms
		case name == "p99_latency_ms" && err == nil:
			r.p99 = 1e6 * ms
		}
	}
	if r.p50 == 0 || r.p99 == 0 {
		return r, fmt.Errorf("redis-benchmark says: %s", out)
	}
	return r, nil
}
