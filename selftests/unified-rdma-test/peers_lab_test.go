package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
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

// command is the program's command line. The second entry of the GID table has the IPv4 address.
func (c peerCase) command(t *testing.T, device, where string) (*exec.Cmd, *text) {
	t.Helper()
	words := append(strings.Fields(c.theirs), "-d", device, "-g", "1")
	if where != "" {
		words = append(words, where)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(10*time.Second))
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, testenv.Tool(t, c.program), words...)
	out := new(text)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

func (c peerCase) asClient(t *testing.T, p place) {
	s := p.serveOn(t, append(strings.Fields(c.ours), p.card, p.device, noDisk, "server")...)
	cmd, out := c.command(t, p.device, p.server)
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s", c.program, err, out)
	}
	if status := s.ended(); status != 0 {
		t.Errorf("ours ends with %d: %s%s; %s says\n%s", status, &s.out, &s.errs, c.program, out)
	}
}

func (c peerCase) asServer(t *testing.T, p place) {
	cmd, out := c.command(t, p.device, "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Wait(t, 10*time.Second, c.program+" to listen", listens)
	if text := p.asked(t, append(strings.Fields(c.ours), p.card, p.device, noDisk, p.server)...); !strings.Contains(text, "usec") {
		t.Errorf("ours says %s", text)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", c.program, err, out)
	}
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
