package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// pings runs ping from an end until answered is called, which checks that the answers came.
func pings(t *testing.T, e *testenv.End, to string) (answered func(when string)) {
	t.Helper()
	cmd := e.Command("ping", "-n", "-i", "0.02", to)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return func(when string) {
		t.Helper()
		testenv.Must(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait() // its counts are checked
		var sent, came int
		_, counts, _ := strings.Cut(out.String(), " statistics ---\n")
		if n, err := fmt.Sscanf(counts, "%d packets transmitted, %d received", &sent, &came); n != 2 || sent == 0 || sent-came > 1 { // one may be under way
			t.Errorf("%s: %d pings of %s were sent, and %d answered: %v", when, sent, to, came, err)
		}
	}
}

// TestCaptureTakesNothing: a capture on the loopback interface, or on the one with the default route, has copies, also on a
// machine without huge pages. The host goes on with all its packets.
func TestCaptureTakesNothing(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.B.Run(t, "ip", "link", "set", "lo", "up")
	p.B.Run(t, "ip", "route", "add", "default", "via", p.A.IP.String())
	for iface, to := range map[string]string{"lo": "127.0.0.1", p.B.Ifname: p.A.IP.String()} {
		args := []string{"capture", "-Z", other, "-i", iface, "-c", "20"}
		for _, cmd := range []*exec.Cmd{command(t, &p.B, args...), withoutPages(t, &p.B, append([]string{program(t)}, args...)...)} {
			answered := pings(t, &p.B, to)
			status, _, stderr := finish(t, cmd)
			if status != 0 || !strings.Contains(stderr, "20 packets captured") || !strings.Contains(stderr, "; 0 lost\n") || !strings.Contains(stderr, "copies, the host receives the packets as before; counted only, as there is no -w\n") {
				t.Errorf("-i %s: status %d: %s", iface, status, stderr)
			}
			answered("capture -i " + iface)
		}
	}
}

// TestTakeRefused: packets that the host or the user's session depends on are taken only if the user insists, also where a
// filter chooses some of them.
func TestTakeRefused(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.B.Run(t, "ip", "link", "set", "lo", "up")
	session := fmt.Sprintf("SSH_CONNECTION=%v 40000 %v 22", p.A.IP, p.B.IP)
	taken := func(why string, env []string, args ...string) {
		t.Helper()
		answered := pings(t, &p.B, "127.0.0.1")
		others := pings(t, &p.B, p.A.IP.String())
		status, _, stderr := finish(t, commandAsIs(t, &p.B, env, append([]string{"capture", "-Z", other}, args...)...))
		if status != exitFailed || !strings.Contains(stderr, why) || !strings.Contains(stderr, "--take=anyway") {
			t.Errorf("%v: status %d, and not %q: %s", args, status, why, stderr)
		}
		answered(why)
		others(why)
	}
	taken("lo carries what programs of this host send to each other", nil, "-i", "lo", "--take")
	taken("carries your SSH session from "+p.A.IP.String(), []string{session}, "-i", p.B.Ifname, "--take", "tcp")
	cmd := p.B.Command("timeout", "60", "env", session, "bash", "-c", `env -u SSH_CONNECTION "$@"; exit $?`, "sudo", program(t), "capture", "-Z", other, "-i", p.B.Ifname, "--take")
	if status, _, stderr := finish(t, cmd); status != exitFailed || !strings.Contains(stderr, "your SSH session") {
		t.Errorf("without the variable: status %d: %s", status, stderr)
	}
	p.B.Run(t, "ip", "route", "add", "default", "via", p.A.IP.String())
	taken(p.B.Ifname+" carries the default route", nil, "-i", p.B.Ifname, "--take", "udp", "port", "5000")
	background(t, p)
	status, _, stderr := finish(t, command(t, &p.B, "capture", "-i", p.B.Ifname, "--take=anyway", "--ring", "512", "-c", "20", "udp", "port", "5000"))
	if status != 0 || !strings.Contains(stderr, "20 packets captured") || !strings.Contains(stderr, "the host does not see it") {
		t.Errorf("anyway: status %d: %s", status, stderr)
	}
}

// TestCaptureSummary: packets that came before the capture was ready, or after the number that was asked for, are not
// called lost.
func TestCaptureSummary(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	heavily(t, p)
	for _, take := range []string{"--take", "-q"} {
		status, _, stderr := finish(t, command(t, &p.B, "capture", "-i", p.B.Ifname, take, "-c", "3", "-s", "64"))
		if status != 0 || !strings.Contains(stderr, "3 packets captured") || !strings.Contains(stderr, "packets came after those that -c asks for") {
			t.Errorf("%s: status %d: %s", take, status, stderr)
		}
		for _, wrong := range []string{afterCount, unready, "nothing"} {
			if strings.Contains(stderr, wrong) {
				t.Errorf("%s: the summary has %q: %s", take, wrong, stderr)
			}
		}
	}
}

// TestTcpdumpFlags: a flag of tcpdump that the command does not have, or one of an earlier version, is refused with what to
// write in place of it. What only taken packets have needs --take.
func TestTcpdumpFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-v": "tcpdump -r -", "-nnX": "tcpdump -r -", "-A": "tcpdump -r -", "-e": "tcpdump -r -", "-r x.pcapng": "unifiedd export -r", "-l": "500ms", "-U": "500ms",
		"-B 4096": "--buffer-size", "--mirror": "copies are the default", "--mirror=ingress": "-Q in", "--take-over": "--take=anyway",
		"--take=maybe": "--take=anyway", "--take -Q in": "-Q", "--take --engine packet": "--engine packet", "--engine auto": "packet or xdp",
		"--ring 512": "--engine xdp", "--queues 0": "only packets that are taken from the host have it", "-i other": "--take", "--take -i lo --nonsense": "unknown flag: --nonsense",
	} {
		status, out, errs := finish(t, exec.Command(program(t), append([]string{"capture", "-i", "lo"}, strings.Fields(args)...)...))
		if status != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, and not %q: %s%s", args, status, want, out, errs)
		}
	}
}

// TestTakeFromDaemon: a capture that cannot take packets because a flow of the daemon does says so. The doctor does not take
// the daemon's program for another one.
func TestTakeFromDaemon(t *testing.T) {
	s := startServed(t)
	s.start(t)
	cmd := commandAsIs(t, &s.pair.B, []string{socketVariable + "=" + s.socket}, "capture", "-Z", "root", "-i", s.pair.B.Ifname, "--take", "--ring", "512")
	want := fmt.Sprintf("flow cap of the daemon, process %d, takes the packets of %s", os.Getpid(), s.pair.B.Ifname)
	if status, _, stderr := finish(t, cmd); status != exitFailed || !strings.Contains(stderr, want) {
		t.Errorf("status %d, and not %q: %s", status, want, stderr)
	}
	cmd = commandAsIs(t, &s.pair.B, []string{socketVariable + "=" + s.socket}, "doctor", "-i", s.pair.B.Ifname)
	want = fmt.Sprintf("that of flow cap of the daemon, process %d", os.Getpid())
	if _, stdout, stderr := finish(t, cmd); !strings.Contains(stdout, want) {
		t.Errorf("not %q: %s%s", want, stdout, stderr)
	}
}
