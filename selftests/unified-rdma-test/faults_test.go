package main

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

// endless is the number of messages of a test that a fault interrupts.
const endless = 10_000_000

// asking is a client of an endless test.
type asking struct {
	*programtest.Run
	begun time.Time
}

// lines counts the lines that the server printed with this beginning.
func (s *server) lines(begin string) int { return strings.Count(s.Out.String(), "\n"+begin) }

// rid waits until the server has printed an error for each client so far.
func (s *server) rid() {
	s.t.Helper()
	testenv.Wait(s.t, 20*time.Second, "the server to say what became of its clients", func() bool { return s.lines("error:") == s.lines("client ") })
}

// asks starts a client of an endless test. It returns when the test is under way.
func (s *server) asks(p place, options string) asking {
	s.t.Helper()
	s.rid()
	before, sent := s.lines("client "), p.sent(s.t)
	c := asking{p.run(s.t, p.asClient(fmt.Sprintf("%s -n %d", options, endless))...), time.Now()}
	testenv.Wait(s.t, 10*time.Second, "the client", func() bool { return s.lines("client ") > before })
	testenv.Wait(s.t, 10*time.Second, "its packets", func() bool { return p.sent(s.t) > sent+100 })
	return c
}

// says checks that a client ends in time, with an error that matches want.
func (c asking) says(t *testing.T, want string) {
	t.Helper()
	status, took := c.End(), time.Since(c.begun)
	if status != 1 || !regexp.MustCompile(want).MatchString(c.Errs.String()) || took > testenv.Within(20*time.Second) {
		t.Errorf("%q: status %d after %v, %q does not say %q; %s", c.Args, status, took, &c.Errs, want, &c.Out)
	}
}

// linkDown: when the client's card goes down during a test, both sides report an error, the client
// with the status want. When the card is up again, the server serves the next client.
func linkDown(t *testing.T, p place, set func(up bool), want rdma.Status) {
	s := p.serveOn(t, p.asServer("-keep -timeout 3s", noDisk)...)
	// In each of these tests the client always has a request outstanding. In a latency test of WRITE or
	// SEND the client often only waits for the server. Then the server's request may fail instead.
	for _, options := range []string{"-test bandwidth -op write -size 4096", "-test bandwidth -op send -size 4096", "-test latency -op read"} {
		c := s.asks(p, "-timeout 8s "+options)
		set(false)
		c.End()
		set(true)
		c.says(t, want.String())
	}
	s.rid()
	p.asked(t, p.asClient("-test verify -n 10")...)
	if status := s.ended(); status != 0 || !strings.Contains(s.Out.String(), "1 clients were served, 3 failed") {
		t.Errorf("the server ends with %d: %s%s", status, &s.Out, &s.Errs)
	}
}

// peerKilled: when the server's process dies, the client's own device fails its requests. A new
// server can bind the same port, and ends without an error on a signal.
func peerKilled(t *testing.T, p place) {
	for options, want := range map[string]string{
		"-test bandwidth -op send -size 4096":  rdma.RetryExceeded.String(),
		"-test bandwidth -op write -size 4096": rdma.RetryExceeded.String(),
		"-test bandwidth -op read -size 4096":  rdma.RetryExceeded.String(),
		"-test latency -op fetch-add":          rdma.RetryExceeded.String(),
	} {
		s := p.keeps(t)
		c := s.asks(p, "-qp-timeout 15 -timeout 8s "+options)
		s.Signal(syscall.SIGKILL)
		c.says(t, want)
		s.End()
	}
	s := p.keeps(t)
	p.asked(t, p.asClient("-test verify -n 10")...)
	s.ended()
	if !strings.Contains(s.Out.String(), "1 clients were served, 0 failed") {
		t.Errorf("a server that is ended says %s%s", &s.Out, &s.Errs)
	}
}

// peerStopped: when the server's process is stopped, the client ends with an error in time. When
// the server continues, it serves the next client. How a test ends depends on what acknowledges for
// the stopped process.
func peerStopped(t *testing.T, p place, ends map[string]string) {
	s := p.keeps(t)
	for options, want := range ends {
		c := s.asks(p, "-timeout 5s "+options)
		s.Signal(syscall.SIGSTOP)
		c.End()
		s.Signal(syscall.SIGCONT)
		c.says(t, want)
	}
	s.rid()
	if out := p.asked(t, p.asClient("-test verify -n 10")...); !strings.Contains(out, "every byte as it should be") {
		t.Errorf("%s", out)
	}
}
