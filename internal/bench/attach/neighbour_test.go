package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// barNeighbour is how much longer a message may take while a neighbour is stopped or killed.
const barNeighbour = 1.1

// TestAgainstNeighbours compares the latency of a channel between two programs without and with another program on the
// same daemon: a reader of the channel that is stopped, and a program that is killed once a second.
func TestAgainstNeighbours(t *testing.T) {
	testenv.Root(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, form: form, dir: t.TempDir(), unifiedd: testenv.Build(t, "cmd/unifiedd"), flowTest: testenv.Build(t, "selftests/unified-flow-test"), count: 60_000}
	if form == bench.Short {
		b.count = 1000
	}
	log := b.startNeighbours()
	r := bench.NewReport("Neighbours", "a channel beside another program", "a channel alone")
	r.NoteLoad("before")
	const size = 256
	alone := func(ctx context.Context) (oneWay, error) { return b.channel(ctx, size, "-rate", "20000") }
	stopped := func(ctx context.Context) (oneWay, error) { return b.besideStopped(ctx, log, size) }
	killed := func(ctx context.Context) (oneWay, error) { return b.besideKilled(ctx, size) }
	for _, one := range []struct {
		name string
		run  contest.Run[oneWay]
	}{{"a stopped reader", stopped}, {"a killed program", killed}} {
		c := &contest.Contest[oneWay]{Name: one.name, Programs: []contest.Run[oneWay]{one.run, alone}, Measures: []contest.Measure[oneWay]{
			{Metric: "median", Unit: "ns", Better: bench.Less, Theirs: 1, Of: func(s oneWay) float64 { return s.p50 }},
			{Metric: "99%", Unit: "ns", Better: bench.Less, Bar: barNeighbour, Theirs: 1, Of: func(s oneWay) float64 { return s.p99 }},
		}}
		b.must(c.Rounds(t.Context(), form.Rounds))
		r.Comparisons = append(r.Comparisons, c.Comparisons()...)
	}
	r.NoteLoad("after")
	r.Notes = append(r.Notes,
		fmt.Sprintf("%d rounds, in turn, fresh processes for each run of %d round trips of %d bytes at 20000 a second, one process on CPU 0 and one on CPU 1, both poll; %s form.", form.Rounds, b.count, size, form.Name),
		"The stopped reader has the policy drop_oldest and is stopped (SIGSTOP) when it has opened the channel. The killed program takes messages of a flow. It is killed (SIGKILL) and started once a second.")
	b.must(r.Finish(t.Output(), form, t.TempDir(), "neighbours"))
}

// startNeighbours starts a daemon with two channels and a flow to another program, and returns its log.
func (b *bed) startNeighbours() *daemon.Log {
	b.Helper()
	file := filepath.Join(b.dir, "unifiedd.yaml")
	b.must(os.WriteFile(file, fmt.Appendf(nil, `
region: {size: 16MiB, pages: ordinary}
control: {socket: %[1]s/control.sock}
workers: [{name: main, wait: sleep}]
attach:
  socket: %[1]s/attach.sock
  programs: [{name: ping, user: "%[2]d"}, {name: pong, user: "%[2]d"}, {name: monitor, user: "%[2]d", in: 2MiB}]
  channels:
    - {name: there, writer: ping, slots: 64, slot: 512, readers: [{program: pong, policy: wait}, {program: monitor}]}
    - {name: back, writer: pong, slots: 64, slot: 512, readers: [{program: ping, policy: wait}]}
flows:
  - {name: feed, from: {generate: 64, rate: 100}, to: {attach: monitor, policy: drop_oldest}}
`, b.dir, os.Getuid()), 0o600))
	return b.start(exec.Command(b.unifiedd, "run", "-c", file), "flow runs")
}

// monitor returns a command of the third program.
func (b *bed) monitor(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, b.flowTest, append(args, "-socket", filepath.Join(b.dir, "attach.sock"), "-as", "monitor", "-timeout", "5m")...)
}

// besideStopped measures the channel while a third program that reads it is stopped.
func (b *bed) besideStopped(ctx context.Context, log *daemon.Log, size int) (s oneWay, err error) {
	before := strings.Count(log.String(), opens)
	monitor := b.monitor(ctx, "channel", "-reads", "there")
	if err := monitor.Start(); err != nil {
		return s, err
	}
	ended := make(chan struct{})
	defer func() {
		_ = monitor.Process.Kill() // it runs until then
		_ = monitor.Wait()         // it is killed
		<-ended
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stopped error
	go func() { // the channel has no reader before it has a writer
		defer close(ended)
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if strings.Count(log.String(), opens) > before {
				stopped = monitor.Process.Signal(syscall.SIGSTOP)
				return
			}
		}
	}()
	s, err = b.channel(ctx, size, "-rate", "20000")
	cancel()
	<-ended
	if err == nil && strings.Count(log.String(), opens) == before {
		err = fmt.Errorf("the third program has not opened the channel:\n%s", log)
	}
	return s, errors.Join(err, stopped)
}

// opens is what the daemon says when the third program has opened the channel.
const opens = `msg="a program has opened a channel" program=monitor`

// besideKilled measures the channel while a third program is killed once a second.
func (b *bed) besideKilled(ctx context.Context, size int) (s oneWay, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		for ctx.Err() == nil {
			monitor := b.monitor(context.Background(), "take", "-flow", "feed", "-count", "1000000")
			if err := monitor.Start(); err != nil {
				ended <- err
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			_ = monitor.Process.Kill() // it runs until then
			_ = monitor.Wait()         // it is killed
		}
		ended <- nil
	}()
	s, err = b.channel(ctx, size, "-rate", "20000")
	cancel()
	if err := <-ended; err != nil {
		return s, err
	}
	return s, err
}
