package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// copiesOn runs the capture command, with copies that the XDP engine makes, in end B's namespace.
func copiesOn(t *testing.T, p *testenv.Pair, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return finish(t, command(t, &p.B, append([]string{"capture", "-i", p.B.Ifname, "--engine", "xdp", "--ring", "512"}, args...)...))
}

// TestCaptureMirror: with copies as on the wire from the interface of the default route, the host still answers pings,
// and the capture has both pings and answers, or those of one direction.
func TestCaptureMirror(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.B.Run(t, "ip", "route", "add", "default", "via", p.A.IP.String())
	ping := p.A.Command("ping", "-i", "0.05", "-c", "600", p.B.IP.String())
	testenv.Must(t, ping.Start())
	t.Cleanup(func() { _ = ping.Process.Kill(); _ = ping.Wait() })
	file := filepath.Join(testenv.DiskDir(t), "out.pcapng")
	status, _, stderr := copiesOn(t, p, "-w", file, "-c", "8", "icmp")
	if status != 0 || !strings.Contains(stderr, "8 packets captured") || !strings.Contains(stderr, "copies") {
		t.Fatalf("status %d: %s", status, stderr)
	}
	got := p.A.Run(t, "tcpdump", "-nr", file)
	if asked, answered := strings.Count(got, "echo request"), strings.Count(got, "echo reply"); asked == 0 || answered == 0 || asked+answered != 8 {
		t.Errorf("%d pings and %d answers: %s", asked, answered, got)
	}
	if links := p.B.Run(t, "ip", "-o", "link"); strings.Contains(links, "ufd-") {
		t.Errorf("left behind: %s", links)
	}
	if status, _, stderr = copiesOn(t, p, "-Q", "in", "-w", file, "-c", "8", "icmp"); status != 0 || strings.Count(p.A.Run(t, "tcpdump", "-nr", file), "echo request") != 8 {
		t.Errorf("what comes in: status %d: %s", status, stderr)
	}
	status, _, stderr = copiesOn(t, p, "-Q", "sideways", "icmp")
	if status != exitUsage || !strings.Contains(stderr, "sideways") {
		t.Errorf("status %d: %s", status, stderr)
	}
}
