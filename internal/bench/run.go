package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what the kernel charged a process that ended, its threads included,
// by wait4(2).
type Usage struct {
	User, System time.Duration // their sum is exact, how it is split depends on the timer's ticks
	Wall         time.Duration
	Switches     int64 // context switches, both kinds
}

// CPU is the processor time of both kinds.
func (u Usage) CPU() time.Duration { return u.User + u.System }

// Run runs a program to its end with all its threads on one CPU, ahead of other
// programs there where we may (nice -20), or (cpu < 0) like any other, and returns what it printed on standard output. What it printed on standard error
// is in the error, which there is when it does not exit with status 0. When the
// context ends the program is killed.
func Run(ctx context.Context, cpu int, name string, args ...string) (out []byte, u Usage, err error) {
	c := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	start := time.Now()
	if err := startOn(c, cpu); err != nil {
		return nil, u, fmt.Errorf("start %s: %w", name, err)
	}
	err = c.Wait()
	u = usage(c, time.Since(start))
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), errors.Join(ctx.Err(), err), strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), u, err
}

// startOn starts a program on one CPU: a process inherits the affinity and the
// priority of the thread that makes it. The thread is given up afterwards, so that
// nothing else runs with them.
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

// pin puts the calling thread on a CPU, ahead of others where that is allowed.
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

func usage(c *exec.Cmd, wall time.Duration) Usage {
	s := c.ProcessState
	u := Usage{User: s.UserTime(), System: s.SystemTime(), Wall: wall}
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		u.Switches = r.Nvcsw + r.Nivcsw
	}
	return u
}
