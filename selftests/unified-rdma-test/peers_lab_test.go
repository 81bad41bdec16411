package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

// TestPeers: the programs, unmodified, work as clients of ours and as servers for ours.
func TestPeers(t *testing.T) {
	labenv.Guest(t)
	p := newPlace(t)
	for _, c := range peerCases {
		if testing.Short() && !c.short {
			continue
		}
		name := strings.ReplaceAll(c.program+" "+c.theirs, " ", "_")
		t.Run("client_"+name, func(t *testing.T) { c.asClient(t, p) })
		if !testing.Short() {
			t.Run("server_"+name, func(t *testing.T) { c.asServer(t, p) })
		}
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

func (c peerCase) asServer(t *testing.T, p place) {
	r := c.start(t, p.device)
	testenv.Wait(t, 10*time.Second, c.program+" to listen", listens)
	if said := p.asked(t, append(strings.Fields(c.ours), p.card, p.device, noDisk, p.server)...); !strings.Contains(said, "usec") {
		t.Errorf("ours says %s", said)
	}
	r.Must()
}

// listens reports whether a program listens on port 18515. In /proc/net/tcp, 0A is the state
// LISTEN, and the port is in hexadecimal.
func listens() bool {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], ":4853") && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}
