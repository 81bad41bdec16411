package main

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

// TestManager: all tests work over queue pairs that rdma_cm connects. rping, unmodified, works as
// client of ours; selftests/interop has it as server, too.
func TestManager(t *testing.T) {
	labenv.Guest(t)
	p := newPlace(t)
	t.Run("tests", func(t *testing.T) { managed(t, p) })
	t.Run("rping as client", func(t *testing.T) { rpingAsClient(t, p) })
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
