package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// traced is a daemon with a control socket in memory.
type traced struct {
	*exec.Cmd             // which may be the parent of the daemon
	pid               int // of the daemon
	dir, file, socket string
}

// startTraced runs a daemon with one flow to a disk and one to nowhere.
func startTraced(t *testing.T, more string) *traced {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "unifiedd-trace-")
	testenv.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &traced{dir: dir, file: filepath.Join(dir, "test.yaml"), socket: filepath.Join(dir, "control.sock")}
	text := fmt.Sprintf(`control: {socket: %s}
region: {size: 64MiB, pages: ordinary, extents: 16}
%s
flows:
  - {name: nowhere, from: {generate: 200, rate: 20000}, to: {discard: true}}
  - {name: recorded, from: {generate: 600, rate: 5000}, to: {file: %s/cap, segment: {size: 16MiB, keep: 2}}}
`, d.socket, more, testenv.DiskDir(t))
	testenv.Must(t, os.WriteFile(d.file, []byte(text), 0o600))
	d.run(t)
	return d
}

func (d *traced) run(t *testing.T) {
	t.Helper()
	d.Cmd = exec.Command(testenv.Tool(t, "unifiedd"), "run", "-c", d.file)
	var said bytes.Buffer
	d.Stderr = &said
	testenv.Must(t, d.Start())
	t.Cleanup(func() {
		if d.ProcessState == nil {
			_ = d.Process.Kill()
			_ = d.Wait()
		}
	})
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if raw, err := control.Page(context.Background(), d.socket, "/status"); err == nil {
			var s status.Daemon
			testenv.Must(t, json.Unmarshal(raw, &s))
			d.pid = s.PID
			return
		}
	}
	t.Fatalf("the daemon is not ready:\n%s", said.String())
}

// snapshots runs trace --json.
func (d *traced) snapshots(t *testing.T, args ...string) map[string]trace.Snapshot {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "unifiedd"), append([]string{"trace", "--socket", d.socket, "--json"}, args...)...).Output()
	if err != nil {
		t.Fatalf("trace: %v\n%s", err, out)
	}
	var all []trace.Snapshot
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	by := make(map[string]trace.Snapshot)
	for _, s := range all {
		by[s.Flow] = s
	}
	return by
}

// TestTraceAfterKill: after SIGKILL the files say what each flow did until then, and the next daemon keeps them.
func TestTraceAfterKill(t *testing.T) {
	testenv.Root(t)
	d := startTraced(t, "")
	time.Sleep(500 * time.Millisecond)
	if s := d.snapshots(t)["nowhere"]; !s.Alive || s.Packets == 0 || s.PID != d.pid {
		t.Errorf("while it runs: alive %v, process %d, want %d, %d packets", s.Alive, s.PID, d.pid, s.Packets)
	}
	killed := time.Now()
	testenv.Must(t, syscall.Kill(d.pid, syscall.SIGKILL))
	_ = d.Wait()
	dead := d.snapshots(t)
	for name, length := range map[string]uint64{"nowhere": 200, "recorded": 600} {
		s := dead[name]
		if s.Alive || s.PID != d.pid || s.Step == trace.Stopped || s.Packets == 0 || s.Bytes != length*s.Packets || len(s.Events) < 10 {
			t.Errorf("%s: alive %v, process %d, step %v, %d packets, %d bytes, %d events", name, s.Alive, s.PID, s.Step, s.Packets, s.Bytes, len(s.Events))
			continue
		}
		if before := killed.Sub(s.Round); before > time.Second || before < -time.Second {
			t.Errorf("%s: the last round was %v before the kill", name, before)
		}
		sum := uint64(0)
		for _, e := range s.Events {
			sum += uint64(e.Packets)
		}
		if sum == 0 || sum > s.Packets {
			t.Errorf("%s: the events have %d of %d packets", name, sum, s.Packets)
		}
		if len(s.Notes) == 0 || s.Notes[0].Kind != "state" || s.Notes[0].Text != "running" {
			t.Errorf("%s: notes %+v", name, s.Notes)
		}
	}
	out, err := exec.Command(testenv.Tool(t, "unifiedd"), "trace", "--socket", d.socket, "nowhere").CombinedOutput()
	for _, want := range []string{fmt.Sprintf("of process %d, which has ended", d.pid), "doing", "it was ", "packets, ", "after the round before"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("trace does not say %q: %v\n%.800s", want, err, out)
		}
	}
	first := d.pid
	d.run(t)
	if s := d.snapshots(t)["nowhere"]; s.PID != d.pid || !s.Alive {
		t.Errorf("the next daemon: process %d, want %d", s.PID, d.pid)
	}
	if s := d.snapshots(t, "--previous")["nowhere"]; s.PID != first || s.Alive || s.Packets != dead["nowhere"].Packets {
		t.Errorf("the one before: process %d, want %d, %d packets, want %d", s.PID, first, s.Packets, dead["nowhere"].Packets)
	}
	testenv.Must(t, d.Process.Signal(syscall.SIGTERM))
	testenv.Checkf(t, d.Wait(), "the daemon")
	s := d.snapshots(t)["recorded"]
	if s.Step != trace.Stopped || len(s.Notes) == 0 || s.Notes[len(s.Notes)-1].Text != "stopped" {
		t.Errorf("after a stop: step %v, notes %+v", s.Step, s.Notes)
	}
}

// TestTraceLosses: what a flow loses is noted with its reason, and no more events are kept than configured.
func TestTraceLosses(t *testing.T) {
	testenv.Root(t)
	other, err := os.MkdirTemp("/dev/shm", "unifiedd-trace-")
	testenv.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(other) })
	dir := filepath.Join(other, "below", "flight")
	d := startTraced(t, "trace: {events: 64, directory: "+dir+"}")
	if err := syscall.Kill(d.pid, syscall.SIGSTOP); err != nil { // 20000 packets a second: the generator's ring is full after 0.8 s
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	testenv.Must(t, syscall.Kill(d.pid, syscall.SIGCONT))
	lost := func() (n uint64) {
		for _, note := range d.snapshots(t, "--dir", dir)["nowhere"].Notes {
			if note.Kind == "lost" && note.Text == "not_generated" {
				n += note.Value
			}
		}
		return n
	}
	for end := time.Now().Add(10 * time.Second); lost() == 0 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
	}
	if n := lost(); n < 1000 {
		t.Errorf("%d lost packets are noted", n)
	}
	if s := d.snapshots(t, "--dir", dir)["nowhere"]; len(s.Events) > 64 || len(s.Events) < 10 {
		t.Errorf("%d events are kept", len(s.Events))
	}
}

// TestTraceErrors: what cannot be read is an error that names it and the remedy.
func TestTraceErrors(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ args, want string }{
		"no directory": {"--dir " + dir + "/none", "control.socket"},
		"no such flow": {"--dir " + dir + " f", `no flow "f"`},
	} {
		out, err := exec.Command(testenv.Tool(t, "unifiedd"), append([]string{"trace"}, strings.Fields(c.args)...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "bad"+trace.Suffix), []byte("nonsense"), 0o600))
	if out, err := exec.Command(testenv.Tool(t, "unifiedd"), "trace", "--dir", dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "bad.trace") || !strings.Contains(string(out), "flight recorder") {
		t.Errorf("a damaged file: %v\n%s", err, out)
	}
}
