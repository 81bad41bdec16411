package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// barAppend is how much longer an append may take than one in the daemon's own process.
const barAppend = 1.2

// role is the environment variable that makes this binary a program of a comparison, and not a test.
const role = "UNIFIEDD_BENCH_ROLE"

func TestMain(m *testing.M) {
	if r := os.Getenv(role); r != "" {
		if err := act(r, os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, r+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// act runs a role: a daemon alone, a program alone, or both in one process.
func act(role, dir string, args []string) error {
	if role == "program" {
		return appendAll(dir, args)
	}
	d, err := openDaemon(dir)
	if err != nil {
		return err
	}
	if role == "both" {
		return errors.Join(appendAll(dir, args), d.Close())
	}
	fmt.Fprintln(os.Stderr, "flow runs")
	select {} // until it is killed
}

func openDaemon(dir string) (*flows.Daemon, error) {
	c, err := config.Load(filepath.Join(dir, "unifiedd.yaml"), config.Options{})
	if err != nil {
		return nil, err
	}
	d, err := flows.Open(c, flows.Options{Version: "bench", Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = d.Start()
	}
	return d, err
}

// appendAll appends messages, one at a time, and prints the median and the 99th percentile in nanoseconds.
func appendAll(dir string, args []string) error {
	size, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	k, s, err := opened(dir)
	if err != nil {
		return err
	}
	times := latency.New()
	for i := range warm + count {
		begun := time.Now()
		if err := appendOne(s, size); err != nil {
			return err
		}
		if i >= warm {
			times.Record(uint64(time.Since(begun)))
		}
	}
	sum := times.Summary()
	fmt.Println(sum.P50, sum.P99)
	return errors.Join(s.Close(), k.Close())
}

// opened opens the flow as soon as the daemon has it.
func opened(dir string) (k *attached.Client, s *attached.Sender, err error) {
	for end := time.Now().Add(testenv.Within(10 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
		if k, err = attached.Attach(attached.Config{Socket: filepath.Join(dir, "attach.sock"), Name: "writer"}); err == nil {
			if s, err = k.Send("log", 0); err == nil {
				return k, s, nil
			}
			err = errors.Join(err, k.Close())
		}
		if time.Now().After(end) {
			return nil, nil, err
		}
	}
}

// warm is the number of appends before those that are measured.
const warm = 200

// appendOne appends a message and polls until it is done.
func appendOne(s *attached.Sender, size int) error {
	f, err := s.Claim()
	if err != nil {
		return err
	}
	if _, err := s.Commit(f, size); err != nil {
		return err
	}
	var r [1]attached.Receipt
	for {
		n, err := s.Poll(r[:])
		if n > 0 {
			err = r[0].Err
		}
		if n > 0 || err != nil {
			return err
		}
	}
}

// TestAgainstOwnProcess compares an append of an attached program with one in the daemon's own process.
func TestAgainstOwnProcess(t *testing.T) {
	r := bench.Start(t, "append", "Append", "an attached program", "the daemon's own process")
	count := map[string]int{"received": r.Form.Share(50_000), "written": r.Form.Share(5000), "durable": r.Form.Share(2000)}
	for _, acknowledge := range []string{"received", "written", "durable"} {
		for _, size := range []int{64, 3072} {
			n := count[acknowledge]
			bench.Compare(r, &bench.Contest[oneWay]{Name: fmt.Sprintf("%s, %d B", acknowledge, size), Programs: []bench.Run[oneWay]{
				func(ctx context.Context) (oneWay, error) { return appendApart(ctx, t, acknowledge, size, n) },
				func(ctx context.Context) (oneWay, error) { return appendTogether(ctx, t, acknowledge, size, n) },
			}, Measures: measures("", 1, barAppend, 0)})
		}
	}
	r.Finish(
		fmt.Sprintf("In turn, fresh processes and logs for each run of %d (received) to %d (durable) appends, one at a time.", count["received"], count["durable"]),
		"The daemon's worker waits for events, and the program polls. Both use package attached.")
}

// place makes a directory with the configuration of a daemon that has a log of a program.
func place(t *testing.T, acknowledge string) (dir string, err error) {
	dir, err = os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "unifiedd.yaml"), fmt.Appendf(nil, `
region: {size: 32MiB, pages: ordinary}
control: {socket: %[1]s/control.sock}
workers: [{name: main}]
attach: {socket: %[1]s/attach.sock, programs: [{name: writer, user: "%[2]d", out: 2MiB}]}
flows:
  - {name: log, from: {attach: writer, message: 3KiB}, to: {file: %[1]s/log, acknowledge: %[3]s}}
`, dir, os.Getuid(), acknowledge), 0o600)
}

// part returns a command that runs a role of this binary.
func part(ctx context.Context, r, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], append([]string{dir}, args...)...)
	c.Env = append(os.Environ(), role+"="+r)
	return c
}

func appendApart(ctx context.Context, t *testing.T, acknowledge string, size, count int) (s oneWay, err error) {
	dir, err := place(t, acknowledge)
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	d := part(ctx, "daemon", dir)
	if err := d.Start(); err != nil {
		return s, err
	}
	defer func() {
		_ = d.Process.Kill() // it runs until then
		_ = d.Wait()         // it is killed
	}()
	return scan(part(ctx, "program", dir, fmt.Sprint(size), fmt.Sprint(count)))
}

func appendTogether(ctx context.Context, t *testing.T, acknowledge string, size, count int) (s oneWay, err error) {
	dir, err := place(t, acknowledge)
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	return scan(part(ctx, "both", dir, fmt.Sprint(size), fmt.Sprint(count)))
}

// stderrOf returns what a command that failed has said.
func stderrOf(err error) []byte {
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return exit.Stderr
	}
	return nil
}

// scan runs a command and returns what it measured.
func scan(c *exec.Cmd) (s oneWay, err error) {
	out, err := c.Output()
	if err != nil {
		return s, fmt.Errorf("%w: %s", err, stderrOf(err))
	}
	_, err = fmt.Sscan(string(out), &s.p50, &s.p99)
	return s, err
}
