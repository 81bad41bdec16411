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
	Log    *Log          // what it says
	Exited chan struct{} // closed when it has ended
	Err    error         // how it ended, once Exited is closed

	program string
	cmd     *exec.Cmd
	client  *http.Client
}

// Log collects what a process writes.
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

// String is everything so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Launch runs a program with a configuration in the namespace of an end. Configuration
// and control socket are in dir. The process is killed at the end of the test, if it is
// still there.
func Launch(t *testing.T, program string, e *testenv.End, dir, text string) *Daemon {
	t.Helper()
	file, socket := filepath.Join(dir, "unifiedd.yaml"), filepath.Join(dir, "control.sock")
	if err := os.WriteFile(file, []byte("control: {socket: "+socket+"}\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Socket: socket, Log: new(Log), Exited: make(chan struct{}), program: program, cmd: e.Command(program, "run", "-c", file)}
	d.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	d.cmd.Stderr = d.Log
	caught := make(chan os.Signal, 1) // as a signal that is caught, SIGHUP is not ignored in the daemon, also below nohup(1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.Err = d.cmd.Wait()
		close(d.Exited)
	}()
	t.Cleanup(d.Kill)
	return d
}

// Kill ends the daemon as a crash does. What was launched is the parent process, whose
// child the daemon is; it ends with the daemon.
func (d *Daemon) Kill() {
	victims := children(d.cmd.Process.Pid)
	if len(victims) == 0 {
		victims = []int{d.cmd.Process.Pid}
	}
	select {
	case <-d.Exited: // the numbers may be others' by now
	default:
		for _, pid := range victims {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
	}
	<-d.Exited
	d.client.CloseIdleConnections()
}

// children are the processes a process has started.
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

// Signal asks the process to end.
func (d *Daemon) Signal(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Terminate asks the process to end, which it must do well, and waits until it has.
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
	case <-time.After(60 * time.Second):
		t.Fatalf("the daemon does not end\n%s", d.Log)
	}
}
