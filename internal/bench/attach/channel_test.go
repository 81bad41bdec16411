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
	"github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// barIceoryx is the part of iceoryx' latency that a channel may take.
const barIceoryx = 0.5

// bed is the machinery of the comparison.
type bed struct {
	*testing.T
	form                           bench.Form
	dir                            string
	unifiedd, flowTest, iox, roudi string
	libraries                      string // directory of iceoryx' libraries
	count                          int    // round trips of a run
}

// oneWay is what a run measured, in nanoseconds: half of a round trip.
type oneWay struct{ p50, p99 float64 }

// TestAgainstIceoryx compares a channel with iceoryx: a message to another process and back.
func TestAgainstIceoryx(t *testing.T) {
	b := newBed(t)
	r := bench.NewReport("Channels", "a channel", "iceoryx 2.0.3")
	r.NoteLoad("before")
	sizes := []int{64, 4096}
	if b.form != bench.Short {
		sizes = []int{64, 256, 1024, 4096}
	}
	for _, size := range sizes {
		c := &contest.Contest[oneWay]{Name: fmt.Sprintf("%d B", size), Programs: []contest.Run[oneWay]{
			func(ctx context.Context) (oneWay, error) { return b.channel(ctx, size) },
			func(ctx context.Context) (oneWay, error) { return b.iceoryx(ctx, size) },
		}, Measures: []contest.Measure[oneWay]{
			{Metric: "median", Unit: "ns", Better: bench.Less, Bar: barIceoryx, Theirs: 1, Of: func(s oneWay) float64 { return s.p50 }},
			{Metric: "99%", Unit: "ns", Better: bench.Less, Theirs: 1, Of: func(s oneWay) float64 { return s.p99 }},
		}}
		b.must(c.Rounds(t.Context(), b.form.Rounds))
		r.Comparisons = append(r.Comparisons, c.Comparisons()...)
	}
	r.NoteLoad("after")
	r.Notes = append(r.Notes,
		fmt.Sprintf("%d rounds, in turn, fresh processes for each run of %d round trips, one process on CPU 0 and one on CPU 1, both poll; %s form.", b.form.Rounds, b.count, b.form.Name),
		"Half of the time of a message to the other process and back. Both copy the message into and out of the shared memory.")
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "channel"))
}

func newBed(t *testing.T) *bed {
	testenv.Root(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../../build/unpacked")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, form: form, dir: t.TempDir(), unifiedd: testenv.Build(t, "cmd/unifiedd"), flowTest: testenv.Build(t, "selftests/unified-flow-test"),
		roudi: filepath.Join(root, "usr/bin/iox-roudi"), libraries: filepath.Join(root, "usr/lib/x86_64-linux-gnu"), count: 200_000}
	if form == bench.Short {
		b.count = 500 // on a busy machine each may cost both programs a time slice
	}
	b.iox = filepath.Join(b.dir, "iceoryx")
	headers, err := filepath.Glob(filepath.Join(root, "usr/include/iceoryx/v*"))
	if err != nil || len(headers) != 1 {
		t.Fatalf("the headers of iceoryx are not in %s: %v (run: make setup-test)", root, err)
	}
	build := exec.Command(testenv.Tool(t, "g++"), "-O2", "-std=c++14", "-I", headers[0], "-o", b.iox, "testdata/iceoryx.cpp",
		"-L", b.libraries, "-liceoryx_posh", "-liceoryx_hoofs", "-liceoryx_platform", "-lpthread", "-lrt", "-latomic")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program of iceoryx: %v\n%s", err, out)
	}
	b.startDaemon()
	b.start(b.with(b.roudi), "RouDi is ready")
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// startDaemon starts a daemon with two channels.
func (b *bed) startDaemon() {
	b.Helper()
	file := filepath.Join(b.dir, "unifiedd.yaml")
	b.must(os.WriteFile(file, fmt.Appendf(nil, `
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
	b.must(c.Start())
	b.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt) // it may have ended
		_ = c.Wait()                       // it ends by the signal
	})
	testenv.Wait(b.T, testenv.Within(20*time.Second), "the program to be ready", func() bool { return strings.Contains(said.String(), says) })
	return said
}

// with adds iceoryx' libraries to a command.
func (b *bed) with(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+b.libraries)
	return c
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
