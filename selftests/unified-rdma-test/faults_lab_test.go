//go:build lab

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// endless is a test that something happens to.
const endless = 10_000_000

// answer is how a client ended.
type answer struct {
	status    int
	out, errs string
	took      time.Duration
}

// lines counts what the server said.
func (s *server) lines(begin string) int { return strings.Count(s.out.String(), "\n"+begin) }

// rid waits until the server has said of each client so far that it failed.
func (s *server) rid() {
	s.t.Helper()
	testenv.Wait(s.t, 20*time.Second, "the server to say what became of its clients", func() bool { return s.lines("error:") == s.lines("client ") })
}

// asks starts a client of an endless test, and returns when that is under way.
func (s *server) asks(p place, options string) chan answer {
	s.t.Helper()
	done := make(chan answer, 1)
	s.rid()
	before, sent := s.lines("client "), sentPackets(s.t, p.device)
	go func() {
		begin := time.Now()
		status, out, errs := askFor(s.t, p.asClient(fmt.Sprintf("%s -n %d", options, endless))...)
		done <- answer{status, out, errs, time.Since(begin)}
	}()
	testenv.Wait(s.t, 10*time.Second, "the client", func() bool { return s.lines("client ") > before })
	testenv.Wait(s.t, 10*time.Second, "its packets", func() bool { return sentPackets(s.t, p.device) > sent+100 })
	return done
}

// sentPackets is how many a device has sent.
func sentPackets(t *testing.T, device string) uint64 {
	t.Helper()
	all, err := verbs.ReadCounters(device, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == "sent_pkts" {
			return c.Value
		}
	}
	t.Fatalf("%s does not count what it sends", device)
	return 0
}

// says wants a client to have ended with an error, in time.
func (a answer) says(t *testing.T, what string, within time.Duration, want string) {
	t.Helper()
	if a.status != 1 || !strings.Contains(a.errs, want) || a.took > testenv.Within(within) {
		t.Errorf("%s: status %d after %v, %q does not say %q; %s", what, a.status, a.took, a.errs, want, a.out)
	}
}

// TestLinkDown: the card goes down under a test. Both sides say so, and when it is up again the server serves
// the next.
func TestLinkDown(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form, where TestSilence of rdma/verbs has the card go down; make lab has it")
	}
	p := newPlace(t)
	s := serveOn(t, p.asServer("-keep -timeout 3s", noDisk)...)
	// Each has something outstanding at any time: between the messages of a latency test of WRITE or
	// SEND the client only waits for the server, whose request it may be that fails.
	for _, options := range []string{"-test bandwidth -op write -size 4096", "-test bandwidth -op send -size 4096", "-test latency -op read"} {
		done := s.asks(p, "-timeout 8s "+options)
		labenv.SetLink(t, p.card, false)
		a := <-done
		labenv.SetLink(t, p.card, true)
		a.says(t, options, 20*time.Second, downStatus(t).String())
	}
	s.rid()
	asked(t, p.asClient("-test verify -n 10")...)
	s.end()
	if status := s.ended(); status != 0 || !strings.Contains(s.out.String(), "1 clients were served, 3 failed") {
		t.Errorf("the server ends with %d: %s%s", status, &s.out, &s.errs)
	}
}

// downStatus is what Soft-RoCE says of a request while its card is down.
func downStatus(t *testing.T) rdma.Status {
	if labenv.Kernel(t) == labenv.Linux61 {
		return rdma.LocalQPOperation
	}
	return rdma.WorkFlushed
}

// TestPeerKilled: the server's process dies. Whoever has requests under way is told by its own card. A
// server that comes after it has the port, and ends in good order when it is told to.
func TestPeerKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form, where TestServerGoesOn has a client that dies; make lab has it")
	}
	p := newPlace(t)
	for options, want := range map[string]string{
		"-test bandwidth -op send -size 4096":  rdma.RetryExceeded.String(),
		"-test bandwidth -op write -size 4096": rdma.RetryExceeded.String(),
		"-test bandwidth -op read -size 4096":  rdma.RetryExceeded.String(),
		"-test latency -op fetch-add":          rdma.RetryExceeded.String(),
	} {
		s := serveApart(t, p)
		done := s.asks(p, "-qp-timeout 15 -timeout 8s "+options)
		s.signal(syscall.SIGKILL)
		a := <-done
		a.says(t, options, 20*time.Second, want)
		s.gone()
	}
	s := serveApart(t, p)
	asked(t, p.asClient("-test verify -n 10")...)
	s.signal(syscall.SIGTERM)
	s.gone()
	if !strings.Contains(s.out.String(), "1 clients were served, 0 failed") {
		t.Errorf("a server that is ended says %s%s", &s.out, &s.errs)
	}
}

// TestPeerStopped: the server's process does nothing any more, while its kernel goes on to acknowledge.
// The client does not wait for ever, and a server that goes on serves the next.
func TestPeerStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form, where TestServerGoesOn has a peer that dies; make lab has it")
	}
	p := newPlace(t)
	s := serveApart(t, p)
	for options, want := range map[string]string{
		"-test latency -op send":            "check that the peer is alive",
		"-test latency -op write":           "check that the peer is alive",
		"-test bandwidth -op send -size 64": rdma.ReceiverNotReadyExceeded.String(),
	} {
		done := s.asks(p, "-timeout 5s "+options)
		s.signal(syscall.SIGSTOP)
		a := <-done
		s.signal(syscall.SIGCONT)
		a.says(t, options, 20*time.Second, want)
	}
	s.rid()
	if out := asked(t, p.asClient("-test verify -n 10")...); !strings.Contains(out, "every byte as it should be") {
		t.Errorf("%s", out)
	}
}
