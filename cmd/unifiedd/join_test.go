package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// lines is what a program says. Any goroutine may use it.
type lines struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.said.String(), text)
}

// TestLeaves: tcpdump on another host sees the daemon's host join a group when a flow starts, and leave it when the
// daemon is stopped, and when it is killed.
func TestLeaves(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "tcpdump")
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(end.String(), func(t *testing.T) { leaves(t, end) })
	}
}

func leaves(t *testing.T, end syscall.Signal) {
	p, dir := testenv.NewPair(t, testenv.PairOptions{}), testenv.DiskDir(t)
	seen, said := &lines{}, &lines{}
	dump := p.A.Command("tcpdump", "-l", "-n", "-vv", "-i", p.A.Ifname, "igmp")
	dump.Stdout, dump.Stderr = seen, seen
	launch(t, dump)
	wait := func(what string, l *lines) {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); !l.has(what); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%q does not come:\n%s\n%s", what, &seen.said, &said.said)
			}
		}
	}
	wait("listening on", seen)
	file := filepath.Join(dir, "unifiedd.yaml")
	text := fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
control: {socket: %[1]s/control.sock}
flows:
  - name: feed
    from: {interface: %[2]s, join: [239.1.2.3, {group: 232.1.2.3, source: 10.9.9.9}]}
    to: {discard: true}
`, dir, p.B.Ifname)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := p.B.Command(testenv.Tool(t, "unifiedd"), "run", "-c", file)
	d.Stdout, d.Stderr = said, said
	launch(t, d)
	wait("239.1.2.3 to_ex", seen)
	wait("232.1.2.3 allow { 10.9.9.9 }", seen)
	if err := d.Process.Signal(end); err != nil { // nsenter has become the daemon
		t.Fatal(err)
	}
	wait("239.1.2.3 to_in", seen)
	wait("232.1.2.3 block { 10.9.9.9 }", seen)
	_ = d.Wait() // its status says how it ended
}

// launch starts a program that is killed at the end of the test, if it still runs.
func launch(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}
