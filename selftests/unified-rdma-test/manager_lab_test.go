package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
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
	s.Says("connected through rdma_cm")
}

func rpingAsClient(t *testing.T, p place) {
	s := p.serveOn(t, strings.Fields("-peer rping "+p.card+" "+p.device+" - server")...)
	r := programtest.Launch(t, daemon.Here{}, testenv.Tool(t, "rping"), "-c", "-a", p.server, "-C", "20", "-S", "1000", "-V", "-v")
	r.Must()
	s.Must()
	r.Says("ping data: rdma-ping-19: ")
	s.Says("20 pings")
}

// rpingAsServer does not judge rping's status, which is the same for an end and for a failure.
func rpingAsServer(t *testing.T, p place) {
	r := programtest.Launch(t, daemon.Here{}, testenv.Tool(t, "rping"), "-s", "-a", p.server, "-S", "1000", "-v")
	status, said, errs := askPatiently(t, p, "-peer rping -n 20 -size 1000")
	if status != 0 || !strings.Contains(said, "20 pings of 1000 bytes, every byte as it should be") {
		t.Errorf("status %d, %s%s", status, said, errs)
	}
	r.Says("server ping data: rdma-ping-19: ")
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
	c := p.run(t, p.asClient("-R -test latency -n 10000000")...)
	s.Says("10000000 messages")
	time.Sleep(testenv.Within(100 * time.Millisecond))
	c.Signal(os.Kill)
	s.Fails(1, "the peer has disconnected")
}

func managedRefused(t *testing.T, p place) {
	for options, want := range map[string]string{"-peer rping": "check that a program listens", "-peer rping -port 1": "rejected"} {
		if status, out, errs := p.askFor(t, append(strings.Fields(options), p.card, p.device, noDisk, p.server)...); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s%s", options, status, out, errs)
		}
	}
}
