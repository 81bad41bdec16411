package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what the kernel charged a process that ended, its threads included, by wait4(2), and how long it ran.
type Usage struct{ CPU, Wall time.Duration }

// Process is a program that was started.
type Process struct {
	ctx            context.Context
	command        *exec.Cmd
	stdout, stderr bytes.Buffer
	start          time.Time
}

// StartProcess starts a program with all its threads on one CPU, with a higher priority than other programs there if
// permitted (nice -20). If cpu < 0 it runs like any other program. The end of the context kills it. The
// caller must call Wait.
func StartProcess(ctx context.Context, cpu int, name string, args ...string) (*Process, error) {
	p := &Process{ctx: ctx, command: exec.CommandContext(ctx, name, args...), start: time.Now()}
	p.command.Stdout, p.command.Stderr = &p.stdout, &p.stderr
	if err := startOn(p.command, cpu); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// Interrupt asks the program to end, as Ctrl-C does.
func (p *Process) Interrupt() {
	_ = p.command.Process.Signal(os.Interrupt) // it may have ended already; Wait returns how
}

// Kill ends the program.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // as with Interrupt
}

// Wait waits for the program's end and returns its standard output. If the program did not exit with status
// 0, Wait returns an error with its standard error.
func (p *Process) Wait() (out []byte, u Usage, err error) {
	err = p.command.Wait()
	u = Usage{p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime(), time.Since(p.start)}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(p.command.Args, " "), errors.Join(p.ctx.Err(), err), strings.TrimSpace(p.stderr.String()))
	}
	return p.stdout.Bytes(), u, err
}

// RunProcess starts a program as StartProcess does and waits for its end.
func RunProcess(ctx context.Context, cpu int, name string, args ...string) (out []byte, u Usage, err error) {
	p, err := StartProcess(ctx, cpu, name, args...)
	if err != nil {
		return nil, u, err
	}
	return p.Wait()
}

// startOn starts a program on one CPU. A process inherits the affinity and the priority of the
// thread that creates it. The thread ends afterwards, so that no other goroutine runs with them.
func startOn(c *exec.Cmd, cpu int) error {
	if cpu < 0 {
		return c.Start()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := pin(cpu)
		if err == nil {
			err = c.Start()
		}
		done <- err
	}()
	return <-done
}

// pin binds the calling thread to a CPU, with a higher priority than others if permitted.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	if err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("raise the priority: %w", err)
	}
	return nil
}
