package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// dispatched is a daemon in a separate process. It runs as an ordinary user with the few capabilities that
// its parent process leaves it. Its flow runs beside programs that libxdp's tools have loaded.
type dispatched struct {
	*testing.T
	pair   *testenv.Pair
	others *testenv.Libxdp
	dir    string
	file   string // the configuration
	cmd    *exec.Cmd
	log    bytes.Buffer
}

// nobody is the user of the daemon.
const nobody = 65534

func newDispatched(t *testing.T) *dispatched {
	t.Helper()
	testenv.Root(t)
	testenv.HugePages(t, 68<<20)
	pair := testenv.NewPair(t, testenv.PairOptions{})
	d := &dispatched{T: t, pair: pair, others: testenv.NewLibxdp(t, &pair.B), dir: testenv.DiskDir(t)}
	d.file = filepath.Join(d.dir, "test.yaml")
	testenv.Must(t, os.Chown(d.dir, nobody, nobody))
	t.Cleanup(func() {
		if d.cmd != nil {
			d.killBoth()
		}
	})
	return d
}

// write writes a configuration that takes the packets of a filter.
func (d *dispatched) write(filter string) {
	d.Helper()
	text := fmt.Sprintf(`
user: "%d"
region: {size: 64MiB, extents: 8}
control: {socket: %s/control.sock}
flows:
  - name: cap
    from: {interface: %s, ring: 512, filter: %s, beside: libxdp}
    to: {file: %s/cap, segment: {size: 16MiB}, flush: 50ms, durable: 100ms}
`, nobody, d.dir, d.pair.B.Ifname, filter, d.dir)
	testenv.Must(d, os.WriteFile(d.file, []byte(text), 0o644))
}

// start starts the daemon and waits until its flow runs.
func (d *dispatched) start() {
	d.Helper()
	d.log.Reset()
	d.cmd = d.pair.B.Command(testenv.Tool(d, "unifiedd"), "run", "-c", d.file)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	testenv.Must(d, d.cmd.Start())
	testenv.Wait(d, 20*time.Second, "the flow to run", func() bool {
		out, err := d.ask("status", "-o", "wide")
		return err == nil && strings.Contains(out, "beside others (libxdp)")
	})
}

// ask runs a command that queries the daemon.
func (d *dispatched) ask(command ...string) (string, error) {
	out, err := exec.Command(testenv.Tool(d, "unifiedd"), append(command, "--socket", filepath.Join(d.dir, "control.sock"))...).CombinedOutput()
	return string(out), err
}

// child returns the process ID of the daemon itself, below its parent process.
func (d *dispatched) child() int {
	d.Helper()
	pid := d.cmd.Process.Pid
	for {
		found, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		testenv.Must(d, err)
		next := 0
		for _, file := range found {
			text, _ := os.ReadFile(file)
			if words := strings.Fields(string(text)); len(words) > 0 {
				next, _ = strconv.Atoi(words[0])
			}
		}
		if next == 0 {
			return pid
		}
		pid = next
	}
}

// kill kills the daemon and waits until its parent process ends.
func (d *dispatched) kill() {
	d.Helper()
	_ = unix.Kill(d.child(), unix.SIGKILL)
	_ = d.cmd.Wait()
	d.cmd = nil
}

// killBoth also kills the parent process, before it can clean up.
func (d *dispatched) killBoth() {
	d.Helper()
	daemon := d.child()
	_ = d.cmd.Process.Signal(unix.SIGSTOP)
	_ = unix.Kill(daemon, unix.SIGKILL)
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	d.cmd = nil
}

// pings reports whether end B answers. It does if its kernel gets the packets.
func (d *dispatched) pings() bool {
	return d.pair.A.Command("ping", "-c", "2", "-i", "0.05", "-W", "1", d.pair.B.IP.String()).Run() == nil
}

// answers waits until end B answers, or no longer answers.
func (d *dispatched) answers(want bool, when string) {
	d.Helper()
	testenv.Wait(d, 10*time.Second, fmt.Sprintf("answers %v, %s", want, when), func() bool { return d.pings() == want })
}

// TestDispatcherDaemon: a daemon joins libxdp's dispatcher, exchanges its filter there and leaves
// it, with the capabilities that it keeps. If the daemon is killed, its parent process removes its
// program. If both are killed, the program passes all packets to later programs and the kernel, and
// the next start removes it.
func TestDispatcherDaemon(t *testing.T) {
	labenv.Guest(t)
	d := newDispatched(t)
	d.others.Load(t, testenv.OtherPass)
	ours := func() []string {
		return slices.DeleteFunc(d.others.Names(t), func(name string) bool { return name == testenv.OtherPass })
	}
	before := len(d.others.Pins(t))
	d.answers(true, "before")
	d.write("icmp")
	d.start()
	d.answers(false, "while the flow takes them")
	d.write("udp")
	if out, err := d.ask("reload"); err != nil {
		t.Fatalf("reload: %v\n%s%s", err, out, &d.log)
	}
	d.answers(true, "with a filter for others")
	d.write("icmp")
	if out, err := d.ask("reload"); err != nil {
		t.Fatalf("reload: %v\n%s%s", err, out, &d.log)
	}
	d.answers(false, "with the first filter again")

	d.kill()
	if n := len(ours()); n != 0 {
		t.Errorf("the parent process leaves %d programs of a killed daemon\n%s", n, &d.log)
	}
	d.answers(true, "after it was killed")

	d.start()
	d.answers(false, "with the flow again")
	d.killBoth()
	d.answers(true, "after both were killed")
	if n := len(ours()); n != 1 {
		t.Errorf("a daemon that is killed with its parent process leaves %d programs, want 1", n)
	}
	passed := d.others.Count(t, testenv.OtherPass)
	d.answers(true, "after both were killed")
	if d.others.Count(t, testenv.OtherPass) == passed {
		t.Error("the other program sees nothing")
	}
	d.others.Load(t, testenv.OtherDeny)
	d.answers(true, "after others have changed the dispatcher")
	d.others.Unload(t, testenv.OtherDeny)

	d.start()
	if n := len(ours()); n != 1 {
		t.Errorf("after the next start %d programs are ours, want 1", n)
	}
	d.answers(false, "while the next flow takes them")
	testenv.Must(t, d.cmd.Process.Signal(unix.SIGTERM))
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("it ends with %v\n%s", err, &d.log)
	}
	d.cmd = nil
	d.answers(true, "after it has ended")
	if n := len(ours()); n != 0 {
		t.Errorf("it leaves %d programs", n)
	}
	if pins := d.others.Pins(t); len(pins) != before {
		t.Errorf("%d pins are left, there were %d: %v", len(pins), before, pins)
	}
}

// TestDispatcherCapture: the capture command joins a dispatcher if it is asked to. Otherwise it
// reports how to.
func TestDispatcherCapture(t *testing.T) {
	labenv.Guest(t)
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &p.B)
	others.Load(t, testenv.OtherPass)
	background(t, p)
	status, _, stderr := captureOn(t, p, "-c", "5")
	if status != exitFailed || !strings.Contains(stderr, "beside: libxdp") {
		t.Errorf("status %d: %s", status, stderr)
	}
	status, _, stderr = captureOn(t, p, "-c", "5", "--beside", "libxdp", "--priority", "7")
	if status != 0 || !strings.Contains(stderr, "5 packets captured") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if got := others.Names(t); !slices.Equal(got, []string{testenv.OtherPass}) {
		t.Errorf("afterwards there are %v", got)
	}
}
