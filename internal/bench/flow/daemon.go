package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// status has the fields of a daemon's status that the measurements use.
type status struct {
	PID   int `json:"pid"`
	Flows []struct {
		Name    string            `json:"name"`
		State   string            `json:"state"`
		Error   string            `json:"error"`
		Packets uint64            `json:"packets"`
		Dropped map[string]uint64 `json:"dropped"`
		Times   struct {
			Submitted *latency.Distribution `json:"submitted"`
			Done      *latency.Distribution `json:"done"`
		} `json:"frame_times"`
		Sends *struct {
			Peers []struct {
				State string `json:"state"`
			} `json:"peers"`
		} `json:"sends"`
		Receives *struct {
			Posted  int64  `json:"posted"`
			Clients uint64 `json:"connected"`
		} `json:"receives"`
		Group *struct {
			State     string `json:"state"`
			Epoch     uint64 `json:"epoch"`
			Committed uint64 `json:"committed"`
			Last      uint64 `json:"last"`
		} `json:"group"`
	} `json:"flows"`
}

// packets returns how many packets all flows have taken and lost.
func (s *status) packets() (taken, lost uint64) {
	for _, f := range s.Flows {
		taken += f.Packets
		for _, n := range f.Dropped {
			lost += n
		}
	}
	return taken, lost
}

// daemon is a running unifiedd.
type daemon struct {
	program, socket string
	command         *exec.Cmd
	said            output
	ended           chan error
}

// output is the output of a process that may still run.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the output.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns the output so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// launch starts a daemon, and waits until its flows are ready. level is the least important of its log's
// messages. command adds everything except the program and its arguments.
func launch(program, dir, level, text string, command func(name string, args ...string) *exec.Cmd) (*daemon, error) {
	file := filepath.Join(dir, "unifiedd.yaml")
	d := &daemon{program: program, socket: filepath.Join(dir, "control.sock"), ended: make(chan error, 1)}
	if err := os.WriteFile(file, []byte("control: {socket: "+d.socket+"}\nlog: {level: "+level+"}\n"+text), 0o600); err != nil {
		return nil, err
	}
	d.command = command(program, "run", "-c", file)
	d.command.Stderr = &d.said
	if err := d.command.Start(); err != nil {
		return nil, err
	}
	go func() { d.ended <- d.command.Wait() }()
	_, err := d.until("its flows to run", func(s *status) bool {
		for _, f := range s.Flows {
			if f.State == "failed" || f.State != "running" && f.Sends == nil {
				return false
			}
		}
		return true
	})
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// status asks the daemon.
func (d *daemon) status() (s status, err error) {
	out, err := exec.Command(d.program, "status", "--json", "--socket", d.socket).Output()
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

// until waits until ok accepts the daemon's status.
func (d *daemon) until(what string, ok func(*status) bool) (s status, err error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s, err = d.status(); err == nil && ok(&s) {
			return s, nil
		}
		select {
		case err := <-d.ended:
			d.ended <- err
			return s, fmt.Errorf("the daemon has ended: %w\n%s", err, d.said.String())
		default:
		}
	}
	return s, errors.Join(fmt.Errorf("waited for %s: %+v", what, s), err)
}

// stop ends the daemon.
func (d *daemon) stop() error {
	_ = d.command.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case err := <-d.ended:
		if err != nil {
			return fmt.Errorf("the daemon ended: %w\n%s", err, d.said.String())
		}
		return nil
	case <-time.After(40 * time.Second):
		_ = d.command.Process.Kill()
		return errors.New("the daemon did not end")
	}
}

// spent is the processor time of a process so far, without threads that have ended.
func spent(pid int) (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("process %d has no schedstat: %w", pid, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// cost returns the daemon's processor time per packet over a span, and the packets per second.
func (d *daemon) cost(span time.Duration) (ns, rate float64, err error) {
	before, err := d.status()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	first, err := spent(before.PID)
	if err != nil {
		return 0, 0, err
	}
	time.Sleep(span)
	last, err := spent(before.PID)
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(begin)
	after, err := d.status()
	if err != nil {
		return 0, 0, err
	}
	was, _ := before.packets()
	is, _ := after.packets()
	if is == was {
		return 0, 0, errors.New("no packet came meanwhile")
	}
	return float64(last-first) / float64(is-was), float64(is-was) / took.Seconds(), nil
}
