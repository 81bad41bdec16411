// Package programtest runs a self-test program in its own tests, as a process: the test binary is the program.
package programtest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// Variable makes the test binary run the program.
const Variable = "UNIFIEDD_SELFTEST_PROGRAM"

// Main is for TestMain of the program's package.
func Main(m *testing.M, program func()) {
	if os.Getenv(Variable) != "" {
		program()
	}
	os.Exit(m.Run())
}

// Run is one run of a program. It ends with the test.
type Run struct {
	*exec.Cmd
	Out, Errs daemon.Log

	t     *testing.T
	ended chan struct{}
}

// Start starts the program in a place, with the words of a line.
func Start(t *testing.T, at daemon.Place, format string, a ...any) *Run {
	t.Helper()
	self, err := os.Executable()
	testenv.Must(t, err)
	return Launch(t, at, self, strings.Fields(fmt.Sprintf(format, a...))...)
}

// Launch starts another program in a place.
func Launch(t *testing.T, at daemon.Place, path string, args ...string) *Run {
	t.Helper()
	r := &Run{Cmd: at.Command(path, args...), t: t, ended: make(chan struct{})}
	r.Env = append(os.Environ(), Variable+"=1")
	r.Stdout, r.Stderr = &r.Out, &r.Errs
	testenv.Must(t, r.Cmd.Start())
	go func() { _ = r.Cmd.Wait(); close(r.ended) }() // End returns the status
	t.Cleanup(func() { _ = r.Process.Kill(); <-r.ended })
	return r
}

// Over reports whether the program has ended.
func (r *Run) Over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// Says waits until the program has printed a text. If it ends without it, the test fails.
func (r *Run) Says(text string) {
	r.t.Helper()
	testenv.Wait(r.t, 10*time.Second, "the program to say "+text, func() bool {
		over := r.Over()
		says := strings.Contains(r.said(), text)
		if over && !says {
			r.t.Fatalf("%q has ended, and does not say %q:\n%s", r.Args, text, r.said())
		}
		return says
	})
}

func (r *Run) said() string { return r.Out.String() + r.Errs.String() }

// Signal sends a signal. The program may have ended.
func (r *Run) Signal(s os.Signal) { _ = r.Process.Signal(s) }

// End waits until the program ends and returns its exit status.
func (r *Run) End() int {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(testenv.Within(time.Minute)):
		r.t.Fatalf("%q does not end:\n%s", r.Args, r.said())
	}
	return r.ProcessState.ExitCode()
}

// Must waits for a program that must succeed, and reads the JSON values that it prints.
func (r *Run) Must(into ...any) {
	r.t.Helper()
	if status := r.End(); status != 0 {
		r.t.Fatalf("%q: status %d\n%s", r.Args, status, r.said())
	}
	d := json.NewDecoder(strings.NewReader(r.Out.String()))
	for _, one := range into {
		if err := d.Decode(one); err != nil {
			r.t.Fatalf("%q: %v\n%s", r.Args, err, r.said())
		}
	}
}

// Fails waits for a program that must end with a status, and say something.
func (r *Run) Fails(status int, says string) {
	r.t.Helper()
	if got := r.End(); got != status || !strings.Contains(r.said(), says) {
		r.t.Errorf("%q: status %d, and not %d with %q\n%s", r.Args, got, status, says, r.said())
	}
}
