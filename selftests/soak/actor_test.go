package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// actor is a running party, in its own process.
type actor struct {
	site   *site
	cmd    *exec.Cmd
	orders io.WriteCloser
	log    daemon.Log
	ended  chan struct{}
	err    error // why it ended, valid once ended is closed
	mu     sync.Mutex
	said   map[string]tally // the last tallies
}

// memory is the region of a party, in bytes. It has no huge pages. The kernel frees the huge pages
// of a killed process late, and another process may take them first.
const memory = 16 << 20

// enter starts a party at a site and does not wait for it. The end of the test kills it if it still runs.
func enter(t *testing.T, s *site, jobs ...job) *actor {
	t.Helper()
	text, err := json.Marshal(party{Memory: memory, Jobs: jobs})
	testenv.Must(t, err)
	self, err := os.Executable()
	testenv.Must(t, err)
	a := &actor{site: s, cmd: s.Command(self), ended: make(chan struct{}), said: map[string]tally{}}
	a.cmd.Env = append(os.Environ(), partyVariable+"="+string(text))
	a.cmd.Stderr = &a.log
	if a.orders, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	a.cmd.Stdout = &listener{actor: a}
	testenv.Must(t, a.cmd.Start())
	go func() { a.err = a.cmd.Wait(); close(a.ended) }()
	t.Cleanup(func() {
		if a.kill(); t.Failed() {
			t.Logf("the log of %s (%v):\n%s", s.name, a.err, &a.log)
		}
	})
	return a
}

// listener parses an actor's output.
type listener struct {
	actor *actor
	rest  []byte
}

func (l *listener) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		said := map[string]tally{}
		if err := json.Unmarshal(line, &said); err != nil {
			return 0, fmt.Errorf("%s said %q: %w", l.actor.site.name, line, err)
		}
		l.actor.mu.Lock()
		l.actor.said = said
		l.actor.mu.Unlock()
		l.rest = rest
	}
}

// of returns the progress of a job.
func (a *actor) of(name string) tally {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.said[name]
}

// tell sends an order to the party.
func (a *actor) tell(t *testing.T, order, name string) {
	t.Helper()
	if _, err := fmt.Fprintln(a.orders, order, name); err != nil {
		t.Fatalf("tell %s to %s %s: %v\n%s", a.site.name, order, name, err, &a.log)
	}
}

// signal sends a signal to the process.
func (a *actor) signal(t *testing.T, s os.Signal) {
	t.Helper()
	testenv.Mustf(t, a.cmd.Process.Signal(s), "%v to %s", s, a.site.name)
}

// kill ends the process as a crash does.
func (a *actor) kill() {
	_ = a.cmd.Process.Kill() // the process may have ended already
	<-a.ended
}

// leave makes the party end its jobs and exit without an error.
func (a *actor) leave(t *testing.T) {
	t.Helper()
	_ = a.orders.Close()
	select {
	case <-a.ended:
	case <-time.After(testenv.Within(2 * goodbye)):
		t.Fatalf("%s does not end\n%s", a.site.name, &a.log)
	}
	a.fine(t)
	if a.err != nil {
		t.Errorf("%s: %v\n%s", a.site.name, a.err, &a.log)
	}
}

// fine fails the test if one of the party's jobs reports an error.
func (a *actor) fine(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range a.said {
		if n.Error != "" {
			t.Errorf("%s, %s: %s\n%s", a.site.name, name, n.Error, &a.log)
		}
	}
}
