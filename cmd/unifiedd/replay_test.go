package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// replayOn runs the replay command in end A's namespace.
func replayOn(t *testing.T, p *testenv.Pair, args ...string) (status int, stderr string) {
	t.Helper()
	status, _, stderr = finish(t, command(t, &p.A, append([]string{"replay", "-i", p.A.Ifname}, args...)...))
	return status, stderr
}

// TestReplayCommand: with options that tcpreplay's users know, replay sends a capture, and tcpdump
// receives every packet.
func TestReplayCommand(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := testenv.DiskDir(t)
	file := filepath.Join(dir, "in.pcap")
	frames := testenv.Stream(&p.A, &p.B, 5000, 0, 300, 400)
	record(t, p, file, frames)
	for _, c := range []struct {
		args    []string
		packets int
		says    string
	}{
		{[]string{"--topspeed", "--loop", "3"}, 900, "900 packets sent"},
		{[]string{"--mbps", "20", "--limit", "250"}, 250, "late by"},
		{[]string{"--multiplier", "5", "--filter", "udp port 5000"}, 300, "300 packets in the captures; not sent: nothing"},
		{[]string{"--pps", "100", "--duration", "1", "--loop", "0", "-q"}, 90, "packets sent"},
	} {
		before := p.B.Stats(t).RxPackets
		status, stderr := replayOn(t, p, append(c.args, file)...)
		arrived := int(p.B.Stats(t).RxPackets - before)
		if status != 0 || !strings.Contains(stderr, c.says) || arrived < c.packets || len(c.args) < 5 && arrived != c.packets {
			t.Errorf("%v: status %d, %d packets of %d arrived: %s", c.args, status, arrived, c.packets, stderr)
		}
	}
}

// record makes tcpdump capture frames to a file.
func record(t *testing.T, p *testenv.Pair, file string, frames [][]byte) {
	t.Helper()
	dump := p.B.Command(testenv.Tool(t, "tcpdump"), "-i", p.B.Ifname, "-Q", "in", "-c", fmt.Sprint(len(frames)), "-Z", "root", "-U", "-w", file)
	testenv.Must(t, dump.Start())
	stop := time.AfterFunc(30*time.Second, func() { _ = dump.Process.Kill() })
	defer stop.Stop()
	testenv.Wait(t, 20*time.Second, "tcpdump to listen", func() bool { return exec.Command("test", "-s", file).Run() == nil })
	time.Sleep(100 * time.Millisecond) // tcpdump makes the file slightly before it opens its socket
	testenv.SendRaw(t, &p.A, frames, testenv.SendOptions{Rate: 3000})
	testenv.Mustf(t, dump.Wait(), "tcpdump")
}

func TestReplayRefuses(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no file":       {nil, exitUsage, "an argument is missing: unifiedd replay FILE..."},
		"no such file":  {[]string{"/nowhere/x.pcap"}, exitFailed, "/nowhere"},
		"two speeds":    {[]string{"--pps", "5", "--topspeed", "x.pcap"}, exitUsage, "topspeed"},
		"speed":         {[]string{"--multiplier", "-2", "x.pcap"}, exitUsage, "pace"},
		"loop":          {[]string{"--loop", "-3", "x.pcap"}, exitUsage, "loop"},
		"broken filter": {[]string{"--filter", "udp prot 53", "x.pcap"}, exitUsage, "prot"},
		"no zero copy":  {[]string{"--zero-copy", "require", "/etc/passwd"}, exitFailed, "zero copy"},
		"no capture":    {[]string{"/etc/passwd"}, exitFailed, "neither pcap nor pcapng"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stderr := replayOn(t, p, c.args...)
			if status != c.status || !strings.Contains(stderr, c.want) {
				t.Errorf("status %d, want %d and the error to say %q: %s", status, c.status, c.want, stderr)
			}
		})
	}
}
