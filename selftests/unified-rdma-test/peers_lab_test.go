package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

// TestPeers: the programs, unmodified, work as clients of ours. selftests/interop has them as servers, too.
func TestPeers(t *testing.T) {
	labenv.Guest(t)
	p := newPlace(t)
	for _, c := range peerCases {
		if testing.Short() && !c.short {
			continue
		}
		name := strings.ReplaceAll(c.program+" "+c.theirs, " ", "_")
		t.Run("client_"+name, func(t *testing.T) { c.asClient(t, p) })
	}
}

// start starts the program. The second entry of the GID table has the IPv4 address.
func (c peerCase) start(t *testing.T, device string, where ...string) *programtest.Run {
	t.Helper()
	words := slices.Concat(strings.Fields(c.theirs), []string{"-d", device, "-g", "1"}, where)
	return programtest.Launch(t, daemon.Here{}, testenv.Tool(t, c.program), words...)
}

func (c peerCase) asClient(t *testing.T, p place) {
	s := p.serveOn(t, append(strings.Fields(c.ours), p.card, p.device, noDisk, "server")...)
	c.start(t, p.device, p.server).Must()
	s.Must()
}
