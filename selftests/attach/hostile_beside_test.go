package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

const nobody = 65534

// TestHostileBeside: programs of two other users do all that they can, one of them with places for its connections, which the
// other one takes from itself: wakes without end, sockets that are shut down or take a
// minute to close, memory that is opened again, places, ports that come and go, the session of another program. A flow of the
// same worker goes on, and nothing of them is left behind. In the long form its times are compared with those before, for
// UNIFIEDD_SECONDS in turns of two seconds.
func TestHostileBeside(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		testenv.Must(t, os.Chmod(d, 0o755))
	}
	seconds := setting.Number(t, "UNIFIEDD_SECONDS", 2)
	socket := filepath.Join(dir, "attach.sock")
	d := daemon.Launch(t, program, daemon.Here{}, dir, fmt.Sprintf(`
user: root
region: {size: 32MiB, pages: ordinary}
workers: [{name: main, wait: sleep, cpu: 0}]
attach:
  socket: %s
  programs:
    - {name: good, user: root, out: 2MiB}
    - {name: bad, user: "%d", in: 2MiB, out: 2MiB}
    - {name: worse, user: "%d", in: 2MiB, out: 2MiB}
  channels:
    - {name: book, writer: bad, slots: 64, slot: 128, readers: [{program: good, policy: disconnect}, {program: worse}]}
flows:
  - {name: good, from: {attach: good, message: 64}, to: {discard: true}}
  - {name: bad, from: {attach: bad, message: 1KiB}, to: {discard: true}}
  - {name: bad-md, from: {generate: 200, rate: 1000}, to: {attach: bad}}
  - {name: worse, from: {attach: worse, message: 1KiB}, to: {discard: true}}
  - {name: worse-md, from: {generate: 200, rate: 1000}, to: {attach: worse, policy: disconnect}}
`, socket, nobody, nobody-1))
	d.Until(t, "the flows to run", func(s *status.Daemon) bool {
		return !slices.ContainsFunc(s.Flows, func(f status.Flow) bool { return f.State != status.Running })
	})
	good := startGood(t, socket)
	descriptors, locked := holds(t, d)
	var bad []*exec.Cmd
	bad = append(bad, startHostile(t, socket, "bad", nobody, connects), startHostile(t, socket, "worse", nobody-1))
	signal := func(s syscall.Signal) {
		for _, cmd := range bad {
			testenv.Must(t, cmd.Process.Signal(s))
		}
	}
	d.Until(t, "the programs to attack", func(s *status.Daemon) bool {
		return !slices.ContainsFunc(s.Programs.Programs[1:], func(p status.Program) bool { return p.Attaches == 0 })
	})
	var quiet, attacked []time.Duration
	turn := 2 * time.Second
	if testing.Short() {
		turn = time.Second / 2
	}
	for begun := time.Now(); time.Since(begun) < 2*time.Duration(seconds)*time.Second; {
		signal(syscall.SIGSTOP)
		quiet = append(quiet, good.roundTrips(t, turn)...)
		s, err := d.Status()
		testenv.Must(t, err)
		signal(syscall.SIGCONT)
		attacked = append(attacked, good.roundTrips(t, turn)...)
		d.Until(t, "the second program to attack again", func(now *status.Daemon) bool {
			return now.Programs.Programs[2].Attaches > s.Programs.Programs[2].Attaches+1
		})
	}
	s, err := d.Status()
	testenv.Must(t, err)
	for i, cmd := range bad {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("program %d has ended: %v", i, err)
		}
		p := s.Programs.Programs[i+1]
		t.Logf("%s attached %d times, and was ended: %v", p.Name, p.Attaches, p.Ended)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Logf("refused: %v", s.Programs.Refused)
	d.Until(t, "the programs to be gone", func(s *status.Daemon) bool {
		return !s.Programs.Programs[1].Attached && !s.Programs.Programs[2].Attached
	})
	testenv.Wait(t, time.Minute, "everything to be given back", func() bool {
		n, l := holds(t, d)
		return n <= descriptors && l == locked // there may have been a request of the status at first
	})
	for _, f := range []float64{0.5, 0.9, 0.99, 0.999} {
		t.Logf("quantile %.3f of a message's time: %v alone, %v beside hostile programs", f, quantile(quiet, f), quantile(attacked, f))
	}
	t.Logf("%d and %d messages", len(quiet), len(attacked))
	if ratio := float64(quantile(attacked, 0.99)) / float64(quantile(quiet, 0.99)); !testing.Short() && ratio > 1.1 {
		t.Errorf("p99 beside hostile programs is %.2f of that before", ratio)
	}
	if n := strings.Count(d.Log.String(), "\n"); n > 100+4*linesOf(time.Duration(2*seconds)*time.Second) {
		t.Errorf("the daemon's log has %d lines", n)
	}
}

// linesOf is how many lines a program may cause in a time.
func linesOf(d time.Duration) int { return 64 + int(d/time.Second) + 60 }

// holds returns what the daemon's process holds: how many descriptors, and how much locked memory.
func holds(t *testing.T, d *daemon.Daemon) (descriptors int, locked string) {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID()))
	testenv.Must(t, err)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	testenv.Must(t, err)
	_, rest, _ := strings.Cut(string(text), "VmLck:")
	locked, _, _ = strings.Cut(rest, "\n")
	return len(all), strings.TrimSpace(locked)
}

// startHostile starts a program of another user, apart from the worker: it has the last processor.
func startHostile(t *testing.T, socket, name string, user uint32, also ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	testenv.Must(t, err)
	here := filepath.Join(filepath.Dir(socket), "hostile.test") // where the other user may execute it
	if _, err := os.Stat(here); err != nil {
		text, err := os.ReadFile(self)
		testenv.Must(t, err, os.WriteFile(here, text, 0o755))
	}
	cmd := exec.Command(testenv.Tool(t, "taskset"), "-c", fmt.Sprint(runtime.NumCPU()-1), testenv.Tool(t, "nice"), "-n", "19", here, socket, name)
	cmd.Args = append(cmd.Args, also...)
	cmd.Env = append(os.Environ(), role+"=hostile")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out := &daemon.Log{}
	cmd.Stdout, cmd.Stderr = out, out
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text := out.String(); text != "" {
			t.Errorf("%s says %s", name, text)
		}
	})
	return cmd
}

// goodProgram is a program that sends one message after the other.
type goodProgram struct{ s *attached.Sender }

func startGood(t *testing.T, socket string) *goodProgram {
	t.Helper()
	k := attach(t, filepath.Dir(socket), "good", 77)
	s, err := k.Send("good", 0)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, s.Close()) })
	return &goodProgram{s}
}

// roundTrips sends messages for a time, and returns how long each was under way until the flow was done with it.
func (g *goodProgram) roundTrips(t *testing.T, d time.Duration) (took []time.Duration) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, first unix.CPUSet // beside the worker, and apart from the hostile programs
	first.Set(0)
	testenv.Must(t, unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &first))
	defer unix.SchedSetaffinity(0, &before)
	var receipts [1]attached.Receipt
	for begun := time.Now(); time.Since(begun) < d; {
		f, err := g.s.Claim()
		testenv.Must(t, err)
		at := time.Now()
		sequence, err := g.s.Commit(f, 64)
		testenv.Must(t, err)
		for n := 0; n == 0; {
			testenv.Must(t, g.s.Wait(t.Context(), time.Second))
			n, err = g.s.Poll(receipts[:])
			testenv.Must(t, err)
		}
		took = append(took, time.Since(at))
		if receipts[0].Err != nil || receipts[0].Sequence != sequence {
			t.Fatalf("message %d is answered with %+v", sequence, receipts[0])
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 500_000}, nil)
	}
	return took
}

func quantile(all []time.Duration, f float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(int(f*float64(len(all))), len(all)-1)]
}
