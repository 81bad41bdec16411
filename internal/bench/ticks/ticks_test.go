package ticks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// rate is how many ticks come in a second.
const rate = 2000

// bed is the machinery of the comparison: programs and a veth pair. The exchange is at end A.
type bed struct {
	*testing.T
	pair                                   *testenv.Pair
	unifiedd, tickTest, traderInC, echoInC string // paths of programs
	count, warm                            int    // ticks of a run
}

// sample is what one run measured, in nanoseconds.
type sample struct{ p50, p99 float64 }

// TestAgainstTraders compares in the form that UNIFIEDD_BENCH names, and leaves table, JSON and plot in build/bench.
func TestAgainstTraders(t *testing.T) {
	testenv.Root(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	testenv.HugePages(t, 16<<20)
	b := &bed{
		T: t, unifiedd: testenv.Build(t, "cmd/unifiedd"), tickTest: testenv.Build(t, "selftests/unified-tick-test"),
		traderInC: testenv.Compile(t, "../../../selftests/peers/tick-peer/tick-peer.c"),
		echoInC:   testenv.Compile(t, "../../../selftests/peers/tick-peer/tick-echo.c", "-lxdp", "-lbpf"),
		count:     int(form.Span.Seconds() * rate), warm: 200,
	}
	b.pair = testenv.NewPair(t, testenv.PairOptions{})
	rounds := 3 * form.Rounds // 27 in the usual form
	theirs := []string{"", "a plain program in Go", "a plain program in C", "an AF_XDP echo in C, without TCP"}
	c := &contest.Contest[sample]{Name: "tick to order", Programs: []contest.Run[sample]{b.attached, b.plainGo, b.plainC, b.echo}}
	for i, name := range theirs[1:] {
		c.Measures = append(c.Measures,
			contest.Measure[sample]{Case: name, Metric: "median", Unit: "ns", Better: bench.Less, Theirs: i + 1, Of: func(s sample) float64 { return s.p50 }},
			contest.Measure[sample]{Case: name, Metric: "99%", Unit: "ns", Better: bench.Less, Theirs: i + 1, Of: func(s sample) float64 { return s.p99 }})
	}
	r := bench.NewReport("Tick to trade", "a program attached to unifiedd", "other traders")
	r.NoteLoad("before")
	if err := c.Rounds(t.Context(), rounds); err != nil {
		t.Fatal(err)
	}
	r.NoteLoad("after")
	r.Comparisons = c.Comparisons()
	r.Notes = append(r.Notes, fmt.Sprintf("%d rounds, in turn, fresh processes for each run of %d ticks at %d a second, by the kernel's stamps at the exchange; %s form.", rounds, b.count, rate, form.Name))
	if err := r.Finish(t.Output(), form, t.TempDir(), "ticks"); err != nil {
		t.Error(err)
	}
}

// exchange has the exchange measure a trader, and ends the trader.
func (b *bed) exchange(ctx context.Context, trader *exec.Cmd, options ...string) (s sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := append([]string{"exchange", "-json", "-wait", "sleep", "-cpu", "0", "-to", b.pair.B.IP.String() + ":5000", "-rate", strconv.Itoa(rate),
		"-count", strconv.Itoa(b.count), "-warm", strconv.Itoa(b.warm)}, options...)
	command := b.pair.A.Command(b.tickTest, args...)
	x := exec.CommandContext(ctx, command.Path, command.Args[1:]...)
	var out, said, traderSaid bytes.Buffer
	x.Stdout, x.Stderr, trader.Stdout, trader.Stderr = &out, &said, &traderSaid, &traderSaid
	if err := trader.Start(); err != nil {
		return s, err
	}
	ran := x.Run()
	_ = trader.Process.Signal(os.Interrupt) // most have ended with the connection
	ended := trader.Wait()
	if errors.As(ended, new(*exec.ExitError)) && trader.ProcessState.ExitCode() == -1 {
		ended = nil // by the signal
	}
	if err := errors.Join(ran, ended); err != nil {
		return s, fmt.Errorf("%s: %w\n%s\n%s", trader, err, &said, &traderSaid)
	}
	var r struct {
		Clock   string           `json:"clock"`
		Latency *latency.Summary `json:"tick_to_order"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Clock != "kernel" || r.Latency.Count != int64(b.count) {
		return s, fmt.Errorf("%s: the exchange says %s: %w", trader, &out, err)
	}
	return sample{float64(r.Latency.P50), float64(r.Latency.P99)}, nil
}

// listen is where the exchange listens.
func (b *bed) listen() (option, address string) { return "-listen", b.pair.A.IP.String() + ":7000" }

func (b *bed) plainGo(ctx context.Context) (sample, error) {
	option, at := b.listen()
	return b.exchange(ctx, b.pair.B.Command(b.tickTest, "trader", "-wait", "spin", "-cpu", "1", "-from", ":5000", "-to", at), option, at)
}

func (b *bed) plainC(ctx context.Context) (sample, error) {
	option, at := b.listen()
	return b.exchange(ctx, b.pair.B.Command("taskset", "-c", "1", b.traderInC, "0.0.0.0", "5000", b.pair.A.IP.String(), "7000", "spin"), option, at)
}

func (b *bed) echo(ctx context.Context) (sample, error) {
	return b.exchange(ctx, b.pair.B.Command("taskset", "-c", "1", b.echoInC, b.pair.B.Ifname, "5000"), "-echo")
}

func (b *bed) attached(ctx context.Context) (sample, error) {
	dir, err := os.MkdirTemp(b.TempDir(), "daemon")
	if err != nil {
		return sample{}, err
	}
	d := daemon.Launch(b.T, b.unifiedd, &b.pair.B, dir, fmt.Sprintf(`
region: {size: 32MiB, pages: ordinary}
workers: [{name: main, wait: spin, cpu: 1}]
attach: {socket: %s/attach.sock, programs: [{name: trader, user: "%d", in: 8MiB}]}
flows:
  - name: ticks
    from: {interface: %s, ring: 512, filter: udp dst port 5000}
    stages: [{counter: {offset: 8, width: 8, lines: [{name: a, address: %s, port: 5000}]}}]
    to: {attach: trader, queue: 256, policy: wait}
`, dir, os.Getuid(), b.pair.B.Ifname, b.pair.B.IP))
	d.Running(b.T)
	option, at := b.listen()
	s, err := b.exchange(ctx, b.pair.B.Command(b.tickTest, "trader", "-wait", "spin", "-cpu", "0", "-flow", "ticks", "-socket", dir+"/attach.sock", "-to", at), option, at)
	d.Terminate(b.T)
	b.pair.B.AwaitNoProgram(b)
	return s, err
}
