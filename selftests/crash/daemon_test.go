package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// program is the path of the program under test, built once.
var program string

func TestMain(m *testing.M) { os.Exit(withProgram(m.Run)) }

// withProgram builds the program for run and removes it afterwards.
func withProgram(run func() int) int {
	dir, err := os.MkdirTemp("", "unifiedd-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "unifiedd")
	build := exec.Command("go", "build", "-o", program, "github.com/unifiedd/unifiedd/cmd/unifiedd")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the program under test:", err)
		return 1
	}
	return run()
}

// daemon is `unifiedd run` as a process of its own.
type daemon struct {
	cmd    *exec.Cmd
	socket string
	client *http.Client
	log    *buffer
	exited chan struct{}
	err    error // of the process, once exited is closed
}

// buffer collects what a process writes.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// launch runs the program with a configuration in the namespace of an end. The
// process is killed at the end of the test, if it is still there.
func launch(t *testing.T, e *testenv.End, dir, text string) *daemon {
	t.Helper()
	file, socket := filepath.Join(dir, "unifiedd.yaml"), filepath.Join(dir, "control.sock")
	if err := os.WriteFile(file, []byte("control: {socket: "+socket+"}\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{cmd: e.Command(program, "run", "-c", file), socket: socket, log: new(buffer), exited: make(chan struct{})}
	d.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	d.cmd.Stderr = d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.exited)
	}()
	t.Cleanup(func() { d.kill(); d.client.CloseIdleConnections() })
	return d
}

// kill ends the daemon as a crash does. What was launched is the starter, whose
// child the daemon is; it ends with the daemon.
func (d *daemon) kill() {
	victims := children(d.cmd.Process.Pid)
	if len(victims) == 0 {
		victims = []int{d.cmd.Process.Pid}
	}
	for _, pid := range victims {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	<-d.exited
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

// signal asks the process to end.
func (d *daemon) signal(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// terminate asks the process to end and waits until it has.
func (d *daemon) terminate(t *testing.T) {
	t.Helper()
	d.signal(t)
	d.wait(t)
	if d.err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", d.err, d.log)
	}
}

// wait waits until the process has ended.
func (d *daemon) wait(t *testing.T) {
	t.Helper()
	select {
	case <-d.exited:
	case <-time.After(60 * time.Second):
		t.Fatalf("the daemon does not end\n%s", d.log)
	}
}

// status asks the daemon.
func (d *daemon) status() (s flows.Status, err error) {
	body, err := d.do(http.MethodGet, "/status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(body, &s)
}

// control starts or stops a flow, and returns what the program says.
func (d *daemon) control(args ...string) (string, error) {
	said, err := exec.Command(program, append(args, "--socket", d.socket)...).CombinedOutput()
	return string(said), err
}

// do makes a request to the control socket.
func (d *daemon) do(method, path string) ([]byte, error) {
	request, err := http.NewRequest(method, "http://unifiedd"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := d.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(body)))
	}
	return body, err
}

// running waits until the only flow runs.
func (d *daemon) running(t *testing.T) {
	t.Helper()
	d.until(t, "the flow to run", func(s *flows.Status) bool { return s.Flows[0].State == flows.Running })
}

// until polls the status until it is as wanted, and returns it.
func (d *daemon) until(t *testing.T, what string, ok func(*flows.Status) bool) (s flows.Status) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for {
		var err error
		if s, err = d.status(); err == nil && ok(&s) {
			return s
		}
		select {
		case <-d.exited:
			t.Fatalf("the daemon ended while the test waited for %s: %v\n%s", what, d.err, d.log)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s; status %+v: %v\n%s", what, s, err, d.log)
		}
	}
}
