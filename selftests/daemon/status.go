package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Status requests the status from the daemon.
func (d *Daemon) Status() (s status.Daemon, err error) {
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

// Goroutines requests what the daemon's goroutines do.
func (d *Daemon) Goroutines() (string, error) {
	answer, err := d.client.Get("http://unifiedd/debug/pprof/goroutine?debug=1")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// Until polls the status until ok accepts it, and returns it.
func (d *Daemon) Until(t *testing.T, what string, ok func(*status.Daemon) bool) (s status.Daemon) {
	t.Helper()
	end := time.Now().Add(testenv.Within(time.Minute))
	for {
		var err error
		if s, err = d.Status(); err == nil && ok(&s) {
			return s
		}
		select {
		case <-d.Exited:
			t.Fatalf("the daemon ended while the test waited for %s: %v\n%s", what, d.Err, d.Log)
		case <-time.After(testenv.Within(2 * time.Millisecond)):
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s; status %+v: %v\n%s", what, s, err, d.Log)
		}
	}
}

// Running waits until all flows are running.
func (d *Daemon) Running(t *testing.T) {
	t.Helper()
	d.Until(t, "the flows to run", func(s *status.Daemon) bool {
		for _, f := range s.Flows {
			if f.State == status.Failed {
				t.Fatalf("flow %s: %s\n%s", f.Name, f.Error, d.Log)
			}
			if f.State != status.Running {
				return false
			}
		}
		return true
	})
}

// Begun waits until all flows run, or wait for a peer.
func (d *Daemon) Begun(t *testing.T) {
	t.Helper()
	d.Until(t, "the flows to begin", func(s *status.Daemon) bool {
		for _, f := range s.Flows {
			if f.State == status.Failed {
				t.Fatalf("flow %s: %s\n%s", f.Name, f.Error, d.Log)
			}
			if f.State != status.Running && f.State != status.Waiting {
				return false
			}
		}
		return len(s.Flows) > 0
	})
}

// Control starts or stops a flow from the command line, and returns the program's output.
func (d *Daemon) Control(args ...string) (string, error) {
	said, err := exec.Command(d.program, append(args, "--socket", d.Socket)...).CombinedOutput()
	return string(said), err
}

// Page requests one of the pages of the control socket, such as /metrics.
func (d *Daemon) Page(path string) (string, error) {
	answer, err := d.client.Get("http://unifiedd" + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return string(text), err
}
