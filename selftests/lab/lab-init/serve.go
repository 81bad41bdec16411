package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// serve runs the host's commands until the host is gone.
func serve(l *link, log *kernelLog) error {
	if err := os.Setenv("PATH", programPath); err != nil {
		return l.problem(err)
	}
	if err := l.send(wire.Message{Ready: &wire.Ready{Version: release(), Log: log.drain()}}); err != nil {
		return err
	}
	for {
		m, err := l.receive()
		if err != nil {
			return err
		}
		if m.Run == nil {
			continue
		}
		exit, err := run(*m.Run, l)
		if err != nil {
			fmt.Fprintln(l, "lab-init:", err)
			exit.Code = 127
		}
		exit.Log = log.drain()
		if err := l.send(wire.Message{Exit: &exit}); err != nil {
			return err
		}
	}
}

// programPath is the PATH of programs.
const programPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the environment of every command.
func environment() []string {
	return []string{"PATH=" + programPath, "HOME=/root", "USER=root", "LANG=C.UTF-8", "TMPDIR=/tmp", "TERM=dumb"}
}

// run runs a command to its end, and writes its output to out at once. It then kills every process
// that the command left, so that the next command finds the guest quiet.
func run(c wire.Command, out io.Writer) (wire.Exit, error) {
	process, output, err := start(c)
	if err != nil {
		return wire.Exit{}, err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(out, output)
		output.Close()
	}()
	ended := limit(process.Pid, c.Limit)
	status := wait(process.Pid)
	timedOut := ended()
	sweep()
	<-copied
	return wire.Exit{Code: code(status), TimedOut: timedOut}, nil
}

// start starts the command with both its outputs in one pipe. It returns the other end, which the
// caller closes.
func start(c wire.Command) (*os.Process, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe for the output: %w", err)
	}
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		r.Close()
		return nil, nil, fmt.Errorf("open the command's input: %w", err)
	}
	defer null.Close()
	path, err := exec.LookPath(c.Args[0])
	var p *os.Process
	if err == nil {
		p, err = os.StartProcess(path, c.Args, &os.ProcAttr{Dir: c.Dir, Env: append(environment(), c.Env...), Files: []*os.File{null, w, w}})
	}
	if err != nil {
		r.Close()
		return nil, nil, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	return p, r, nil
}

// wait reaps every process that ends, ours or an orphan, until pid has ended.
func wait(pid int) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		if ended, err := unix.Wait4(-1, &status, 0, nil); err == nil && ended == pid {
			return status
		}
	}
}

// sweep kills every process but this one and waits until they are gone. If the kernel cannot end a
// process, sweep keeps waiting, and the host notices that.
func sweep() {
	for {
		_ = unix.Kill(-1, unix.SIGKILL)
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			return
		}
	}
}

// code is the status as a shell gives it.
func code(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
