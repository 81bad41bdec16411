package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
