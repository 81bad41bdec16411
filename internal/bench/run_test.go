package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestRunPinsAndCharges(t *testing.T) {
	cpu := runtime.NumCPU() - 1
	out, u, err := Run(t.Context(), cpu, "sh", "-c", `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; grep Cpus_allowed_list /proc/self/status; nice`)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpu)
	if os.Getuid() == 0 {
		want += "-20\n"
	}
	if !strings.HasPrefix(string(out), want) {
		t.Errorf("runs on %q, want %q", out, want)
	}
	if u.CPU() <= 0 || u.Wall < u.CPU()/2 {
		t.Errorf("%+v", u)
	}
}

func TestRunSaysWhatFailed(t *testing.T) {
	_, _, err := Run(t.Context(), -1, "sh", "-c", "echo the reason >&2; exit 3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "the reason") {
		t.Error(err)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := Run(ctx, 0, "sleep", "60"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestInterrupt: Interrupt ends a program, after a file shows that it is running.
func TestInterrupt(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	p, err := Start(t.Context(), -1, "sh", "-c", `trap 'echo bye; exit 0' INT; touch "$0"; while :; do sleep 0.01; done`, there)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(there); err == nil {
			break
		}
	}
	p.Interrupt()
	if out, _, err := p.Wait(); err != nil || string(out) != "bye\n" {
		t.Errorf("%q, %v", out, err)
	}
}
