package powercut

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// daemon is `unifiedd run` as a process of its own.
type daemon struct {
	cmd    *exec.Cmd
	client *http.Client
	log    *output
	exited chan struct{}
	err    error // of the process, once exited is closed
}

// output collects what a process says.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// launch runs the program with flows in the namespace of an end. It is ended with the
// test at the latest.
func launch(t *testing.T, program string, e *testenv.End, text string) *daemon {
	t.Helper()
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "unifiedd.yaml"), filepath.Join(dir, "control.sock")
	text = "control: {socket: " + socket + "}\nregion: {size: 128MiB, pages: ordinary, extent: 256KiB}\nflows:\n" + text
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{cmd: e.Command(program, "run", "-c", file), log: new(output), exited: make(chan struct{})}
	d.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	d.cmd.Stderr = d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.err = d.cmd.Wait(); close(d.exited) }()
	t.Cleanup(func() {
		d.client.CloseIdleConnections()
		_ = d.cmd.Process.Signal(syscall.SIGTERM) // it has ended, if all went well
		<-d.exited
	})
	return d
}

// status asks the daemon.
func (d *daemon) status() (s flows.Status, err error) {
	answer, err := d.client.Get("http://unifiedd/status")
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("status: %s", answer.Status)
	}
	return s, json.NewDecoder(answer.Body).Decode(&s)
}

// until polls the status until it is as wanted.
func (d *daemon) until(t *testing.T, what string, ok func(s *flows.Status) bool) {
	t.Helper()
	end := time.Now().Add(60 * time.Second)
	for {
		s, err := d.status()
		if err == nil && ok(&s) {
			return
		}
		select {
		case <-d.exited:
			t.Fatalf("the daemon ended while the test waited for %s: %v\n%s", what, d.err, d.log)
		case <-time.After(3 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s: %v, %+v\n%s", what, err, s, d.log)
		}
	}
}

// running waits until all flows run.
func (d *daemon) running(t *testing.T) {
	t.Helper()
	d.until(t, "the flows to run", func(s *flows.Status) bool {
		for _, f := range s.Flows {
			if f.State == flows.Failed {
				t.Fatalf("flow %s: %s\n%s", f.Name, f.Error, d.log)
			}
			if f.State != flows.Running {
				return false
			}
		}
		return true
	})
}

// terminate asks the daemon to end, which it must do well.
func (d *daemon) terminate(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.exited:
	case <-time.After(60 * time.Second):
		t.Fatalf("the daemon does not end\n%s", d.log)
	}
	if d.err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", d.err, d.log)
	}
}
