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
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// barNeighbour is how much longer a message may take while a neighbour is stopped or killed.
const barNeighbour = 1.1

// TestAgainstNeighbours compares the latency of a channel between two programs without and with another program on the
// same daemon: a reader of the channel that is stopped, and programs of which one is killed each second.
func TestAgainstNeighbours(t *testing.T) {
	b := newBed(bench.Start(t, "neighbours", "Neighbours", "a channel beside another program", "a channel alone"), 60_000)
	log := b.startNeighbours()
	const size = 256
	alone := func(ctx context.Context) (oneWay, error) { return b.channel(ctx, size, "-rate", "20000") }
	stopped := func(ctx context.Context) (oneWay, error) { return b.besideStopped(ctx, log, size) }
	killed := func(ctx context.Context) (oneWay, error) { return b.besideKilled(ctx, log, size) }
	for _, one := range []struct {
		name string
		run  bench.Run[oneWay]
	}{{"a stopped reader", stopped}, {"a killed program", killed}} {
		bench.Compare(b.Report, &bench.Contest[oneWay]{Name: one.name, Programs: []bench.Run[oneWay]{one.run, alone}, Measures: measures("", 1, 0, barNeighbour)})
	}
	b.Finish(
		fmt.Sprintf("In turn, fresh processes for each run of %d round trips of %d bytes at 20000 a second, one process on CPU 0 and one on CPU 1, both poll.", b.count, size),
		"The stopped reader has the policy drop_oldest and is stopped (SIGSTOP) when it has opened the channel. The killed programs take messages of a flow each. They run when the measurement begins, and one is killed (SIGKILL) each second.")
}

// startNeighbours starts a daemon with two channels and a flow to another program, and returns its log.
func (b *bed) startNeighbours() *daemon.Log {
	b.Helper()
	file := filepath.Join(b.dir, "unifiedd.yaml")
	b.Must(os.WriteFile(file, fmt.Appendf(nil, `
region: {size: 16MiB, pages: ordinary}
control: {socket: %[1]s/control.sock}
workers: [{name: main, wait: sleep}]
attach:
  socket: %[1]s/attach.sock
  programs: [{name: ping, user: "%[2]d"}, {name: pong, user: "%[2]d"}, {name: monitor, user: "%[2]d", in: 2MiB}, {name: victim0, user: "%[2]d", in: 2MiB}, {name: victim1, user: "%[2]d", in: 2MiB}]
  channels:
    - {name: there, writer: ping, slots: 64, slot: 512, readers: [{program: pong, policy: wait}, {program: monitor}]}
    - {name: back, writer: pong, slots: 64, slot: 512, readers: [{program: ping, policy: wait}]}
flows:
  - {name: feed0, from: {generate: 64, rate: 100}, to: {attach: victim0, policy: drop_oldest}}
  - {name: feed1, from: {generate: 64, rate: 100}, to: {attach: victim1, policy: drop_oldest}}
`, b.dir, os.Getuid()), 0o600))
	return b.start(exec.Command(b.unifiedd, "run", "-c", file), "flow runs")
}

// third returns a command of another program than the two that are measured.
func (b *bed) third(as string, args ...string) *exec.Cmd {
	return exec.Command(b.flowTest, append(args, "-socket", filepath.Join(b.dir, "attach.sock"), "-as", as, "-timeout", "5m")...)
}

// besideStopped measures the channel while a third program that reads it is stopped.
func (b *bed) besideStopped(ctx context.Context, log *daemon.Log, size int) (s oneWay, err error) {
	before := strings.Count(log.String(), opens)
	monitor := b.third("monitor", "channel", "-reads", "there")
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

// victims is how many programs are killed during a measurement of about three seconds.
const victims = 2

// takes is what the daemon says when one of them takes from a flow.
const takes = `msg="a program has opened a port" program=victim`

// besideKilled measures the channel while one program after the other is killed.
func (b *bed) besideKilled(ctx context.Context, log *daemon.Log, size int) (s oneWay, err error) {
	before := strings.Count(log.String(), takes)
	var all [victims]*exec.Cmd
	for i := range all {
		all[i] = b.third(fmt.Sprintf("victim%d", i), "take", "-flow", fmt.Sprintf("feed%d", i), "-count", "1000000")
		if err := all[i].Start(); err != nil {
			return s, err
		}
		defer func() {
			_ = all[i].Process.Kill() // it may have been killed
			_ = all[i].Wait()         // it is killed
		}()
	}
	testenv.Wait(b.T, testenv.Within(20*time.Second), "the programs to take from their flows", func() bool {
		return strings.Count(log.String(), takes) == before+victims
	})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan int)
	go func() {
		for i := range all {
			select {
			case <-ctx.Done():
				ended <- i
				return
			case <-time.After(time.Second):
			}
			_ = all[i].Process.Kill() // it runs until then
		}
		ended <- victims
	}()
	s, err = b.channel(ctx, size, "-rate", "20000")
	cancel()
	if killed := <-ended; err == nil && killed == 0 {
		err = errors.New("no program was killed during the measurement")
	}
	return s, err
}
