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
)

// endless is the number of messages of a test that a fault interrupts.
const endless = 10_000_000

// answer is how a client ended.
type answer struct {
	status    int
	out, errs string
	took      time.Duration
}

// lines counts the lines that the server printed with this beginning.
func (s *server) lines(begin string) int { return strings.Count(s.out.String(), "\n"+begin) }

// rid waits until the server has printed an error for each client so far.
func (s *server) rid() {
	s.t.Helper()
	testenv.Wait(s.t, 20*time.Second, "the server to say what became of its clients", func() bool { return s.lines("error:") == s.lines("client ") })
}

// asks starts a client of an endless test. It returns when the test is under way.
func (s *server) asks(p place, options string) chan answer {
	s.t.Helper()
	done := make(chan answer, 1)
	s.rid()
	before, sent := s.lines("client "), p.sent(s.t)
	go func() {
		begin := time.Now()
		status, out, errs := p.askFor(s.t, p.asClient(fmt.Sprintf("%s -n %d", options, endless))...)
		done <- answer{status, out, errs, time.Since(begin)}
	}()
	testenv.Wait(s.t, 10*time.Second, "the client", func() bool { return s.lines("client ") > before })
	testenv.Wait(s.t, 10*time.Second, "its packets", func() bool { return p.sent(s.t) > sent+100 })
	return done
}

// says checks that a client ended in time, with an error that matches want.
func (a answer) says(t *testing.T, what string, within time.Duration, want string) {
	t.Helper()
	if a.status != 1 || !regexp.MustCompile(want).MatchString(a.errs) || a.took > testenv.Within(within) {
		t.Errorf("%s: status %d after %v, %q does not say %q; %s", what, a.status, a.took, a.errs, want, a.out)
	}
}

// linkDown: when the client's card goes down during a test, both sides report an error, the client
// with the status want. When the card is up again, the server serves the next client.
func linkDown(t *testing.T, p place, set func(up bool), want rdma.Status) {
	s := p.serveOn(t, p.asServer("-keep -timeout 3s", noDisk)...)
	// In each of these tests the client always has a request outstanding. In a latency test of WRITE or
	// SEND the client often only waits for the server. Then the server's request may fail instead.
	for _, options := range []string{"-test bandwidth -op write -size 4096", "-test bandwidth -op send -size 4096", "-test latency -op read"} {
		done := s.asks(p, "-timeout 8s "+options)
		set(false)
		a := <-done
		set(true)
		a.says(t, options, 20*time.Second, want.String())
	}
	s.rid()
	p.asked(t, p.asClient("-test verify -n 10")...)
	s.end()
	if status := s.ended(); status != 0 || !strings.Contains(s.out.String(), "1 clients were served, 3 failed") {
		t.Errorf("the server ends with %d: %s%s", status, &s.out, &s.errs)
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
		done := s.asks(p, "-qp-timeout 15 -timeout 8s "+options)
		s.signal(syscall.SIGKILL)
		a := <-done
		a.says(t, options, 20*time.Second, want)
		s.gone()
	}
	s := p.keeps(t)
	p.asked(t, p.asClient("-test verify -n 10")...)
	s.signal(syscall.SIGTERM)
	s.gone()
	if !strings.Contains(s.out.String(), "1 clients were served, 0 failed") {
		t.Errorf("a server that is ended says %s%s", &s.out, &s.errs)
	}
}

// peerStopped: when the server's process is stopped, the client ends with an error in time. When
// the server continues, it serves the next client. How a test ends depends on what acknowledges for
// the stopped process.
func peerStopped(t *testing.T, p place, ends map[string]string) {
	s := p.keeps(t)
	for options, want := range ends {
		done := s.asks(p, "-timeout 5s "+options)
		s.signal(syscall.SIGSTOP)
		a := <-done
		s.signal(syscall.SIGCONT)
		a.says(t, options, 20*time.Second, want)
	}
	s.rid()
	if out := p.asked(t, p.asClient("-test verify -n 10")...); !strings.Contains(out, "every byte as it should be") {
		t.Errorf("%s", out)
	}
}
