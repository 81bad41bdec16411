package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCaptureMirror: with a mirror on the interface of the default route, the host still answers
// pings, and the capture has both pings and answers.
func TestCaptureMirror(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.B.Run(t, "ip", "route", "add", "default", "via", p.A.IP.String())
	ping := p.A.Command("ping", "-i", "0.05", "-c", "600", p.B.IP.String())
	testenv.Must(t, ping.Start())
	t.Cleanup(func() { _ = ping.Process.Kill(); _ = ping.Wait() })
	file := filepath.Join(testenv.DiskDir(t), "out.pcapng")
	status, _, stderr := captureOn(t, p, "--mirror", "-w", file, "-c", "8", "icmp")
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
	status, _, stderr = captureOn(t, p, "--mirror=sideways", "icmp")
	if status != exitUsage || !strings.Contains(stderr, "sideways") {
		t.Errorf("status %d: %s", status, stderr)
	}
}
