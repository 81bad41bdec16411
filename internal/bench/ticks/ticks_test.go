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
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// rate is how many ticks come in a second.
const rate = 2000

// bed is the machinery of the comparison: programs and a veth pair. The exchange is at end A.
type bed struct {
	*bench.Report
	pair                                   *testenv.Pair
	unifiedd, tickTest, traderInC, echoInC string // paths of programs
	count, warm                            int    // ticks of a run
}

// sample is what one run measured, in nanoseconds.
type sample struct{ p50, p99 float64 }

// TestAgainstTraders compares a rule of unifiedd with other traders.
func TestAgainstTraders(t *testing.T) {
	r := bench.Start(t, "ticks", "Tick to trade", "a rule of unifiedd", "other traders")
	testenv.HugePages(t, 96<<20) // of two daemons: the kernel has those of one for a while after its end
	peer := func(name string, flags ...string) string {
		return testenv.Compile(t, bench.Path(t, "selftests/peers/tick-peer/"+name+".c"), flags...)
	}
	b := &bed{
		Report: r, unifiedd: testenv.Program(t, "cmd/unifiedd"), tickTest: testenv.Program(t, "selftests/unified-tick-test"),
		traderInC: peer("tick-peer"), echoInC: peer("tick-echo", "-lxdp", "-lbpf"), count: int(r.Form.Span.Seconds() * rate), warm: 200,
	}
	b.pair = testenv.NewPair(t, testenv.PairOptions{Queues: 2})
	testenv.Tool(t, "ethtool")
	b.pair.A.Run(t, "ethtool", "-L", b.pair.A.Ifname, "tx", "1") // all ticks come on queue 0, and orders of a flow leave by queue 1
	c := &bench.Contest[sample]{Name: "tick to order", Programs: []bench.Run[sample]{b.ruled, b.plainGo, b.plainC, b.echo, b.ordering, b.attached}}
	for i, theirs := range []struct {
		name string
		bar  float64
	}{{"a plain program in Go", 0.6}, {"a plain program in C", 0.7}, {"an AF_XDP echo in C, without TCP", 1.5},
		{"an attached program, whose orders unifiedd sends", 0}, {"an attached program, which sends them over a socket of the kernel", 0}} {
		c.Measures = append(c.Measures,
			bench.Measure[sample]{Case: theirs.name, Metric: "median", Unit: "ns", Better: bench.Less, Bar: theirs.bar, Theirs: i + 1, Of: func(s sample) float64 { return s.p50 }},
			bench.Measure[sample]{Case: theirs.name, Metric: "99%", Unit: "ns", Better: bench.Less, Bar: theirs.bar, Theirs: i + 1, Of: func(s sample) float64 { return s.p99 }})
	}
	r.Form.Rounds *= 3 // 27 in the usual form
	bench.Compare(r, c)
	r.Finish(fmt.Sprintf("In turn, fresh processes for each run of %d ticks at %d a second, by the kernel's stamps at the exchange.", b.count, rate))
}

// exchange has the exchange measure a trader, and ends the trader; nil: a daemon trades by itself.
func (b *bed) exchange(ctx context.Context, trader *exec.Cmd, options ...string) (s sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := append([]string{"exchange", "-json", "-wait", "sleep", "-cpu", "0", "-to", b.pair.B.IP.String() + ":5000", "-rate", strconv.Itoa(rate),
		"-count", strconv.Itoa(b.count), "-warm", strconv.Itoa(b.warm)}, options...)
	command := b.pair.A.Command(b.tickTest, args...)
	x := exec.CommandContext(ctx, command.Path, command.Args[1:]...)
	var out, said, traderSaid bytes.Buffer
	x.Stdout, x.Stderr = &out, &said
	if trader != nil {
		trader.Stdout, trader.Stderr = &traderSaid, &traderSaid
		if err := trader.Start(); err != nil {
			return s, err
		}
	}
	ran := x.Run()
	if err := errors.Join(ran, end(trader)); err != nil {
		return s, fmt.Errorf("%v: %w\n%s\n%s", trader, err, &said, &traderSaid)
	}
	var r struct {
		Clock   string           `json:"clock"`
		Latency *latency.Summary `json:"tick_to_order"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Clock != "kernel" || r.Latency.Count != int64(b.count) {
		return s, fmt.Errorf("%v: the exchange says %s: %w", trader, &out, err)
	}
	return sample{float64(r.Latency.P50), float64(r.Latency.P99)}, nil
}

// end ends a trader. Most end by themselves when the connection does; the status of those that are interrupted says nothing.
func end(trader *exec.Cmd) error {
	if trader == nil {
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- trader.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(300 * time.Millisecond):
	}
	_ = trader.Process.Signal(os.Interrupt)
	if err := <-ended; !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	return nil
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

// ruled runs a daemon with a rule that makes an order of each tick.
func (b *bed) ruled(ctx context.Context) (sample, error) {
	option, at := b.listen()
	flow := fmt.Sprintf(`
  - name: ticks
    from: {interface: %s, queues: [0], ring: 64, filter: udp dst port 5000}
    to: {order: {connect: "%s", interface: %[1]s, queue: 1, ring: 64, send_times: false, retry: 20ms, rules: [{name: all, when: [{at: 0, is: T}], order: [{text: O}, {copy: 1, bytes: 31}]}]}}
`, b.pair.B.Ifname, at)
	return b.withDaemon(ctx, flow, nil, option, at, "-after", "500ms")
}

// given is a flow that gives ticks to an attached program.
func (b *bed) given() string {
	return fmt.Sprintf(`
  - name: ticks
    from: {interface: %s, queues: [0], ring: 512, filter: udp dst port 5000}
    stages: [{counter: {offset: 8, width: 8, lines: [{name: a, address: %s, port: 5000}]}}]
    to: {attach: trader, queue: 256, policy: wait}
`, b.pair.B.Ifname, b.pair.B.IP)
}

// attached runs a daemon that gives ticks to an attached program, which sends orders over a socket of the kernel.
func (b *bed) attached(ctx context.Context) (sample, error) {
	option, at := b.listen()
	return b.withDaemon(ctx, b.given(), []string{"-to", at}, option, at)
}

// ordering runs a daemon that gives ticks to an attached program, and has another flow that sends its orders.
func (b *bed) ordering(ctx context.Context) (sample, error) {
	option, at := b.listen()
	flows := b.given() + fmt.Sprintf(`
  - name: orders
    from: {attach: trader, message: 64}
    to: {order: {connect: "%s", interface: %s, queue: 1, replies: true, retry: 20ms}}
`, at, b.pair.B.Ifname)
	return b.withDaemon(ctx, flows, []string{"-send", "orders"}, option, at, "-after", "500ms")
}

// withDaemon has the exchange measure a daemon with flows, and a program that gets ticks from it; trader are the
// program's arguments, nil: there is none.
func (b *bed) withDaemon(ctx context.Context, flows string, trader []string, exchange ...string) (sample, error) {
	dir, err := os.MkdirTemp(b.TempDir(), "daemon")
	if err != nil {
		return sample{}, err
	}
	d := daemon.Launch(b.T, b.unifiedd, &b.pair.B, dir, fmt.Sprintf(`
region: {size: 32MiB}
workers: [{name: main, wait: spin, cpu: 1}]
attach: {socket: %s/attach.sock, programs: [{name: trader, user: "%d", in: 8MiB, out: 2MiB}]}
flows:%s`, dir, os.Getuid(), flows))
	d.Begun(b.T)
	var program *exec.Cmd
	if trader != nil {
		args := append([]string{"trader", "-wait", "spin", "-cpu", "0", "-flow", "ticks", "-socket", dir + "/attach.sock"}, trader...)
		program = b.pair.B.Command(b.tickTest, args...)
	}
	s, err := b.exchange(ctx, program, exchange...)
	d.Terminate(b.T)
	b.pair.B.AwaitNoProgram(b)
	return s, err
}
