package daemon

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Daemon is one process.
type Daemon struct {
	Socket string
	Log    *Log          // its output
	Exited chan struct{} // closed when it has ended
	Err    error         // how it ended, once Exited is closed

	program string
	cmd     *exec.Cmd
	client  *http.Client
}

// Log collects the output of a process.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns the output so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Launch runs a program with a configuration in a place. Configuration and control
// socket are in dir. At the end of the test Launch kills the process, if it still runs.
func Launch(t *testing.T, program string, at Place, dir, text string) *Daemon {
	t.Helper()
	file, socket := filepath.Join(dir, "unifiedd.yaml"), filepath.Join(dir, "control.sock")
	testenv.Must(t, os.WriteFile(file, []byte("control: {socket: "+socket+"}\n"+text), 0o644))
	d := &Daemon{Socket: socket, Log: new(Log), Exited: make(chan struct{}), program: program, cmd: at.Command(program, "run", "-c", file)}
	d.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	d.cmd.Stderr = d.Log
	caught := make(chan os.Signal, 1) // the daemon does not inherit SIGHUP as ignored if this process catches it, also under nohup(1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	testenv.Must(t, d.cmd.Start())
	go func() {
		d.Err = d.cmd.Wait()
		close(d.Exited)
	}()
	t.Cleanup(d.Kill)
	return d
}

// Kill ends the daemon as a crash does. The launched process is the parent, and the daemon is its
// child. The parent ends with the daemon.
func (d *Daemon) Kill() {
	for {
		select {
		case <-d.Exited: // other processes may have these numbers now
			d.client.CloseIdleConnections()
			return
		default:
		}
		victims := children(d.cmd.Process.Pid)
		if len(victims) == 0 {
			victims = []int{d.cmd.Process.Pid}
		}
		for _, pid := range victims {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended already
		}
		select {
		case <-d.Exited:
		case <-time.After(10 * time.Millisecond): // the parent has started the daemon since, or runs another program before
		}
	}
}

// PID returns the number of the daemon's process: the child of the launched one, unless that is the daemon itself.
func (d *Daemon) PID() int {
	for _, child := range children(d.cmd.Process.Pid) {
		return child
	}
	return d.cmd.Process.Pid
}

// children returns the processes that a process has started.
func children(pid int) (all []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range tasks {
		text, _ := os.ReadFile(name) // the thread may have ended
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// Signal sends the process the signal to end.
func (d *Daemon) Signal(t *testing.T) {
	t.Helper()
	testenv.Must(t, d.cmd.Process.Signal(syscall.SIGTERM))
}

// Terminate tells the process to end, and waits until it has. The process must succeed.
func (d *Daemon) Terminate(t *testing.T) {
	t.Helper()
	d.Signal(t)
	d.Wait(t)
	if d.Err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", d.Err, d.Log)
	}
}

// Wait waits until the process has ended.
func (d *Daemon) Wait(t *testing.T) {
	t.Helper()
	select {
	case <-d.Exited:
	case <-time.After(testenv.Within(time.Minute)):
		t.Fatalf("the daemon does not end\n%s", d.Log)
	}
}

// Pause stops the daemon as SIGSTOP does: its connections stay. Resume lets it go on.
func (d *Daemon) Pause(t *testing.T) { d.signalChild(t, syscall.SIGSTOP) }

// Resume ends Pause.
func (d *Daemon) Resume(t *testing.T) { d.signalChild(t, syscall.SIGCONT) }

func (d *Daemon) signalChild(t *testing.T, s syscall.Signal) {
	t.Helper()
	for _, pid := range children(d.cmd.Process.Pid) {
		testenv.Must(t, syscall.Kill(pid, s))
	}
}
