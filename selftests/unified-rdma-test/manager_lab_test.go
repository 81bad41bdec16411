package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestManager: all tests work over queue pairs that rdma_cm connects. rping, unmodified, works
// against ours as server and as client.
func TestManager(t *testing.T) {
	labenv.Guest(t)
	p := newPlace(t)
	t.Run("tests", func(t *testing.T) { managed(t, p) })
	t.Run("rping as client", func(t *testing.T) { rpingAsClient(t, p) })
	if testing.Short() {
		return
	}
	t.Run("rping as server", func(t *testing.T) { rpingAsServer(t, p) })
	t.Run("killed", func(t *testing.T) { managedKilled(t, p) })
	t.Run("refused", func(t *testing.T) { managedRefused(t, p) })
}

// managed runs tests of a client with -R and without against one server.
func managed(t *testing.T, p place) {
	s := p.serveOn(t, p.asServer("-keep", t.TempDir()+"/disk")...)
	cases := map[string]string{"-R -test verify -op write -beyond -n 20": "every byte as it should be"}
	if !testing.Short() {
		cases["-R -test verify -op send -size 65537 -n 20"] = "every byte as it should be"
		cases["-R -test verify -op fetch-add -n 20"] = "as it should be"
		cases["-R -test latency -op read -n 100"] = "t_typical"
		cases["-R -test latency -op send -n 100"] = "t_typical"
		cases["-R -test bandwidth -op write -n 100"] = "BW peak"
		cases["-R -n 20"] = "every byte as it should be"
		cases["-test verify -n 20"] = "every byte as it should be"
	}
	for options, want := range cases {
		if out := p.asked(t, p.asClient(options)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s", options, out)
		}
	}
	s.says("connected through rdma_cm")
}

func rpingAsClient(t *testing.T, p place) {
	s := p.serveOn(t, strings.Fields("-peer rping "+p.card+" "+p.device+" - server")...)
	out, err := exec.CommandContext(t.Context(), testenv.Tool(t, "rping"), "-c", "-a", p.server, "-C", "20", "-S", "1000", "-V", "-v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ping data: rdma-ping-19: ") {
		t.Errorf("rping: %v\n%s", err, out)
	}
	if status := s.ended(); status != 0 || !strings.Contains(s.out.String(), "20 pings") {
		t.Errorf("ours ends with %d: %s%s", status, &s.out, &s.errs)
	}
}

func rpingAsServer(t *testing.T, p place) {
	cmd := exec.CommandContext(t.Context(), testenv.Tool(t, "rping"), "-s", "-a", p.server, "-S", "1000", "-v")
	out := new(text)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	status, said, errs := askPatiently(t, p, "-peer rping -n 20 -size 1000")
	if status != 0 || !strings.Contains(said, "20 pings of 1000 bytes, every byte as it should be") {
		t.Errorf("status %d, %s%s", status, said, errs)
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait() // its status is the same for an end and for a failure
	if !strings.Contains(out.String(), "server ping data: rdma-ping-19: ") {
		t.Errorf("rping: %s", out)
	}
}

// askPatiently runs ours as client. It retries, because the other program takes a while to listen.
func askPatiently(t *testing.T, p place, options string) (status int, out, errs string) {
	t.Helper()
	for end := time.Now().Add(testenv.Within(10 * time.Second)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		status, out, errs = p.askFor(t, append(strings.Fields(options), p.card, p.device, noDisk, p.server)...)
		if !strings.Contains(errs, "check that a program listens") {
			break
		}
	}
	return status, out, errs
}

// managedKilled: a server whose client is killed reports that the peer has disconnected.
func managedKilled(t *testing.T, p place) {
	s := p.serveOn(t, p.asServer("-timeout 9s", noDisk)...)
	cmd := p.process(t, p.asClient("-R -test latency -n 10000000")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.says("10000000 messages")
	time.Sleep(testenv.Within(100 * time.Millisecond))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if status := s.ended(); status != 1 || !strings.Contains(s.errs.String(), "the peer has disconnected") {
		t.Errorf("status %d, %s%s", status, &s.out, &s.errs)
	}
}

func managedRefused(t *testing.T, p place) {
	for options, want := range map[string]string{"-peer rping": "check that a program listens", "-peer rping -port 1": "rejected"} {
		if status, out, errs := p.askFor(t, append(strings.Fields(options), p.card, p.device, noDisk, p.server)...); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s%s", options, status, out, errs)
		}
	}
}
