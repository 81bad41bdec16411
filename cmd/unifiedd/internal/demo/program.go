package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// programLimit is far beyond what any program here takes.
const programLimit = 2 * time.Minute

// runProgram runs a program to its end, in the network namespace of the calling thread, and
// returns its output. It is killed with its children when ctx ends or the demo dies: the kernel
// watches the thread that started it, so the caller must be on its own thread (onThread).
func runProgram(ctx context.Context, name string, args ...string) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if ctx.Err() == context.DeadlineExceeded {
		return "", fmt.Errorf("%s did not end within %v", name, programLimit)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, err, strings.TrimSpace(out.String()+errs.String()))
	}
	return out.String(), nil
}
