package attach

import (
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

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// barIceoryx is the part of iceoryx' latency that a channel may take.
const barIceoryx = 0.5

// bed is the machinery of the comparison.
type bed struct {
	*bench.Report
	dir                string
	unifiedd, flowTest string
	iox, libraries     string // program and libraries of iceoryx
	count              int    // round trips of a run
}

// oneWay is what a run measured, in nanoseconds: half of a round trip.
type oneWay struct{ p50, p99 float64 }

// measures compares the median and the 99th percentile of the first program with those of another.
func measures(against string, theirs int, bar, barTail float64) []bench.Measure[oneWay] {
	return []bench.Measure[oneWay]{
		{Metric: "median" + against, Unit: "ns", Better: bench.Less, Bar: bar, Theirs: theirs, Of: func(s oneWay) float64 { return s.p50 }},
		{Metric: "99%" + against, Unit: "ns", Better: bench.Less, Bar: barTail, Theirs: theirs, Of: func(s oneWay) float64 { return s.p99 }},
	}
}

// TestAgainstIceoryx compares a channel with iceoryx: a message to another process and back.
func TestAgainstIceoryx(t *testing.T) {
	b := newBed(bench.Start(t, "channel", "Channels", "a channel", "iceoryx 2.0.3"), 200_000)
	b.startIceoryx()
	b.startDaemon()
	for _, size := range []int{64, 256, 1024, 4096} {
		bench.Compare(b.Report, &bench.Contest[oneWay]{Name: fmt.Sprintf("%d B", size), Programs: []bench.Run[oneWay]{
			func(ctx context.Context) (oneWay, error) { return b.channel(ctx, size) },
			func(ctx context.Context) (oneWay, error) { return b.iceoryx(ctx, size) },
		}, Measures: measures("", 1, barIceoryx, 0)})
	}
	b.Finish(
		fmt.Sprintf("In turn, fresh processes for each run of %d round trips, one process on CPU 0 and one on CPU 1, both poll.", b.count),
		"Half of the time of a message to the other process and back. Both copy the message into and out of the shared memory.")
}

func newBed(r *bench.Report, count int) *bed {
	r.Helper()
	return &bed{Report: r, dir: r.TempDir(), unifiedd: testenv.Program(r, "cmd/unifiedd"), flowTest: testenv.Program(r, "selftests/unified-flow-test"), count: r.Form.Share(count)}
}

// startIceoryx builds the program of iceoryx and starts its daemon.
func (b *bed) startIceoryx() {
	b.Helper()
	roudi, libraries := bench.Unpacked(b, "usr/bin/iox-roudi")
	b.iox, b.libraries = filepath.Join(b.dir, "iceoryx"), libraries
	headers, err := filepath.Glob(bench.Path(b, "build/unpacked/usr/include/iceoryx/v*"))
	if err != nil || len(headers) != 1 {
		b.Fatalf("the headers of iceoryx are not in build/unpacked: %v (run: scripts/setup.sh demo test)", err)
	}
	build := exec.Command(testenv.Tool(b, "g++"), "-O2", "-std=c++14", "-I", headers[0], "-o", b.iox, "testdata/iceoryx.cpp",
		"-L", b.libraries, "-liceoryx_posh", "-liceoryx_hoofs", "-liceoryx_platform", "-lpthread", "-lrt", "-latomic")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build the program of iceoryx: %v\n%s", err, out)
	}
	c := exec.Command(roudi)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+b.libraries)
	b.start(c, "RouDi is ready")
}

// startDaemon starts a daemon with two channels.
func (b *bed) startDaemon() {
	b.Helper()
	file := filepath.Join(b.dir, "unifiedd.yaml")
	b.Must(os.WriteFile(file, fmt.Appendf(nil, `
region: {size: 16MiB, pages: ordinary}
control: {socket: %[1]s/control.sock}
attach:
  socket: %[1]s/attach.sock
  programs: [{name: ping, user: "%[2]d"}, {name: pong, user: "%[2]d"}]
  channels:
    - {name: there, writer: ping, slots: 64, slot: 4160, readers: [{program: pong, policy: wait}]}
    - {name: back, writer: pong, slots: 64, slot: 4160, readers: [{program: ping, policy: wait}]}
flows:
  - {name: idle, from: {generate: 64, rate: 1}, to: {discard: true}}
`, b.dir, os.Getuid()), 0o600))
	b.start(exec.Command(b.unifiedd, "run", "-c", file), "flow runs")
}

// start starts a program that runs until the end of the test, waits until it says something, and returns what it says.
func (b *bed) start(c *exec.Cmd, says string) (said *daemon.Log) {
	b.Helper()
	said = new(daemon.Log)
	c.Stdout, c.Stderr = said, said
	b.Must(c.Start())
	b.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt) // it may have ended
		_ = c.Wait()                       // it ends by the signal
	})
	testenv.Wait(b.T, testenv.Within(20*time.Second), "the program to be ready", func() bool { return strings.Contains(said.String(), says) })
	return said
}

// pinned returns a command on one CPU.
func pinned(ctx context.Context, cpu int, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "taskset", append([]string{"-c", fmt.Sprint(cpu)}, args...)...)
}

// both runs the pong side beside the ping side, and returns what ping prints.
func both(ping, pong *exec.Cmd) ([]byte, error) {
	said := new(daemon.Log)
	pong.Stderr = said
	if err := pong.Start(); err != nil {
		return nil, err
	}
	out, err := ping.Output()
	if err != nil {
		_ = pong.Process.Kill() // it waits for ping
		err = fmt.Errorf("%w: %s", err, stderrOf(err))
	}
	if ended := pong.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("the other side: %w: %s", ended, said))
	}
	return out, err
}

// channel measures two programs with a channel in each direction.
func (b *bed) channel(ctx context.Context, size int, more ...string) (s oneWay, err error) {
	args := func(as, writes, reads string, more ...string) []string {
		return append([]string{b.flowTest, "channel", "-socket", filepath.Join(b.dir, "attach.sock"), "-as", as, "-writes", writes, "-reads", reads,
			"-count", fmt.Sprint(b.count), "-size", fmt.Sprint(size), "-spin"}, more...)
	}
	out, err := both(pinned(ctx, 0, args("ping", "there", "back", append(more, "-json")...)...), pinned(ctx, 1, args("pong", "back", "there", "-echo")...))
	if err != nil {
		return s, fmt.Errorf("the channel: %w", err)
	}
	return latencyOf(out)
}

// latencyOf reads the result of unified-flow-test.
func latencyOf(out []byte) (s oneWay, err error) {
	var r struct {
		Latency struct {
			P50 float64 `json:"p50_ns"`
			P99 float64 `json:"p99_ns"`
		} `json:"latency_ns"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return s, err
	}
	return oneWay{r.Latency.P50, r.Latency.P99}, nil
}

// iceoryx measures two programs with iceoryx.
func (b *bed) iceoryx(ctx context.Context, size int) (s oneWay, err error) {
	side := func(cpu int, role string) *exec.Cmd {
		c := pinned(ctx, cpu, b.iox, role, fmt.Sprint(size), fmt.Sprint(b.count))
		c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+b.libraries)
		return c
	}
	out, err := both(side(0, "ping"), side(1, "pong"))
	if err != nil {
		return s, fmt.Errorf("iceoryx: %w", err)
	}
	_, err = fmt.Sscan(string(out), &s.p50, &s.p99)
	return s, err
}

// stderrOf returns what a command that failed has said.
func stderrOf(err error) []byte {
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return exit.Stderr
	}
	return nil
}
