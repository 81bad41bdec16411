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

// programLimit is much longer than any program here takes.
const programLimit = 2 * time.Minute

// runProgram runs a program to its end, in the network namespace of the calling thread, and returns
// its output. When ctx ends, it kills the program and its children. When the demo dies, the kernel
// kills the program: it watches the thread that started it, so the caller must be on a separate
// thread (onThread).
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
