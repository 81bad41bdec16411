package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// background sends packets from end A, over and over, until the test ends.
func background(t *testing.T, p *testenv.Pair) {
	t.Helper()
	frames := testenv.Stream(&p.A, &p.B, 5000, 0, 20, 200)
	sender := testenv.NewSender(t, &p.A)
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for {
			for _, f := range frames {
				if _, err := sender.Send(f); err != nil {
					return
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
}

// captureOn runs the capture command, which takes packets, in end B's namespace.
func captureOn(t *testing.T, p *testenv.Pair, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return finish(t, command(t, &p.B, append([]string{"capture", "-i", p.B.Ifname, "--take", "--ring", "512"}, args...)...))
}

// TestDoctorLoopback: doctor says what a flow takes of a loopback interface from the host's programs.
func TestDoctorLoopback(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	p.B.Run(t, "ip", "link", "set", "lo", "up")
	for from, want := range map[string]string{"": "flow cap takes all packets", "engine: packet": "the host keeps what it copies", "filter: icmp": "only what its filter accepts"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "unifiedd.yaml")
		text := "region: {size: 8MiB, pages: ordinary}\nflows: [{name: cap, from: {interface: lo, " + from + "}, to: {file: " + dir + "/out}}]\n"
		testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
		_, stdout, stderr := finish(t, commandAsIs(t, &p.B, nil, "doctor", "-c", file))
		if !strings.Contains(stdout, want) || strings.Contains(stdout, "do not reach each other at 127.0.0.1") != (from == "") {
			t.Errorf("doctor with %q: %s%s", from, stdout, stderr)
		}
	}
}

func TestCaptureCount(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	file := filepath.Join(testenv.DiskDir(t), strings.Repeat("c", 248)+".pcapng") // as long as a name can be
	testenv.Must(t, os.WriteFile(file, []byte("an older capture"), 0o600))
	for _, layout := range []string{"packed", "slot"} {
		status, _, stderr := captureOn(t, p, "-w", file, "-c", "100", "--layout", layout, "udp port 5000")
		if status != 0 || !strings.Contains(stderr, "100 packets captured") {
			t.Fatalf("layout %s: status %d: %s", layout, status, stderr)
		}
		got := p.A.Run(t, "tcpdump", "-nr", file)
		if n := strings.Count(got, "UDP"); n != 100 {
			t.Errorf("layout %s: tcpdump reads %d packets, not 100", layout, n)
		}
	}
}

func TestCaptureStream(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	status, stdout, stderr := captureOn(t, p, "-w", "-", "-c", "50")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	tcpdump := p.A.Command(testenv.Tool(t, "tcpdump"), "-nr", "-")
	tcpdump.Stdin = strings.NewReader(stdout)
	got, err := tcpdump.Output()
	if n := strings.Count(string(got), "UDP"); n != 50 || err != nil {
		t.Errorf("tcpdump reads %d packets, not 50: %v", n, err)
	}
}

func TestCaptureCountsOnly(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	status, stdout, stderr := captureOn(t, p, "-c", "30")
	if status != 0 || stdout != "" || !strings.Contains(stderr, "30 packets captured") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestCaptureRefuses(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"broken filter":     {[]string{"udp", "prot", "53"}, exitUsage, "prot"},
		"directory":         {[]string{"-w", t.TempDir(), "udp"}, exitFailed, "not a regular file"},
		"no such queue":     {[]string{"--queues", "7", "udp"}, exitFailed, "no queue 7"},
		"unknown layout":    {[]string{"--layout", "flat", "udp"}, exitUsage, "flat"},
		"comment, no file":  {[]string{"--capture-comment", "x", "udp"}, exitUsage, "name it by -w"},
		"no steering":       {[]string{"--steer", "--queues", "0", "ip", "and", "udp", "dst", "port", "53"}, exitFailed, "remove steer"},
		"steering nowhere":  {[]string{"--steer", "udp"}, exitUsage, "say queues:"},
		"steering anything": {[]string{"--steer", "--queues", "0", "not", "udp"}, exitUsage, "rules of a card"},
		"no zero copy":      {[]string{"--zero-copy", "require", "udp"}, exitFailed, "zero copy"},
		"no such directory": {[]string{"-w", "/nowhere/x.pcapng", "udp"}, exitFailed, "open directory /nowhere: no such file or directory (create the directory first)"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, stderr := captureOn(t, p, c.args...)
			if status != c.status || !strings.Contains(stderr, c.want) {
				t.Errorf("status %d, want %d and the error to say %q: %s", status, c.status, c.want, stderr)
			}
		})
	}
}
