//go:build lab

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// peerCase is a program of rdma-core or perftest and what it is asked for, and the options that
// ask ours for the same.
type peerCase struct {
	program, theirs, ours string
	short                 bool // is in the short form as well
}

var peerCases = []peerCase{
	{"ibv_rc_pingpong", "-n 100", "-peer pingpong -transport RC -n 100", false},
	{"ibv_uc_pingpong", "-n 100", "-peer pingpong -transport UC -n 100", false},
	{"ibv_ud_pingpong", "-n 100 -s 1024", "-peer pingpong -transport UD -n 100 -size 1024", false},
	{"ib_send_lat", "-n 200", "-peer ib_send_lat -n 200", false},
	{"ib_send_lat", "-n 200 -c UD", "-peer ib_send_lat -n 200 -transport UD", false},
	{"ib_send_lat", "-n 200 -c UC -s 1000", "-peer ib_send_lat -n 200 -transport UC -size 1000", false},
	{"ib_send_bw", "-n 200", "-peer ib_send_bw -n 200", false},
	{"ib_write_lat", "-n 200", "-peer ib_write_lat -n 200", true},
	{"ib_write_lat", "-n 200 -c UC", "-peer ib_write_lat -n 200 -transport UC", false},
	{"ib_write_bw", "-n 200", "-peer ib_write_bw -n 200", false},
	{"ib_read_lat", "-n 200", "-peer ib_read_lat -n 200", false},
	{"ib_read_bw", "-n 200 -s 4096", "-peer ib_read_bw -n 200 -size 4096", false},
	{"ib_atomic_lat", "-n 200", "-peer ib_atomic_lat -n 200", false},
	{"ib_atomic_lat", "-n 200 -A CMP_AND_SWAP", "-peer ib_atomic_lat -n 200 -op compare-swap", false},
	{"ib_atomic_bw", "-n 200", "-peer ib_atomic_bw -n 200", false},
}

// TestPeers has the programs, unmodified, as clients of ours and as servers for ours.
func TestPeers(t *testing.T) {
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

// command is their program. The second place of the GID table has the IPv4 address.
func (c peerCase) command(t *testing.T, device, where string) (*exec.Cmd, *text) {
	t.Helper()
	index := "-x"
	if strings.HasPrefix(c.program, "ibv_") {
		index = "-g"
	}
	words := append(strings.Fields(c.theirs), "-d", device, index, "1")
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
	s := serveOn(t, append(strings.Fields(c.ours), p.card, p.device, noDisk, "server")...)
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
	if text := asked(t, append(strings.Fields(c.ours), p.card, p.device, noDisk, p.server)...); !strings.Contains(text, "usec") && !strings.Contains(text, "BW peak") {
		t.Errorf("ours says %s", text)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", c.program, err, out)
	}
}

// listens reports whether somebody listens on the port of those programs: state 0A in
// /proc/net/tcp, and port 18515 there in hexadecimal.
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
