package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// passiveOn runs the capture command with a packet socket in end B's namespace.
func passiveOn(t *testing.T, p *testenv.Pair, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return finish(t, command(t, &p.B, append([]string{"capture", "-i", p.B.Ifname}, args...)...))
}

// TestCapturePassive: the command captures to a file, to files of a size, to standard output and to nothing, with a
// snapshot length and a filter. The host keeps its packets.
func TestCapturePassive(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	dir := testenv.DiskDir(t)
	file := filepath.Join(dir, "out.pcapng")
	status, _, stderr := passiveOn(t, p, "-w", file, "-c", "100", "-s", "60", "--buffer-size", "8MiB", "udp port 5000")
	if status != 0 || !strings.Contains(stderr, "100 packets captured") || !strings.Contains(stderr, "the host receives the packets as before") {
		t.Fatalf("status %d: %s", status, stderr)
	}
	got := p.A.Run(t, "tcpdump", "-nr", file)
	if n := strings.Count(got, "UDP"); n != 100 {
		t.Errorf("tcpdump reads %d packets, not 100", n)
	}
	status, stdout, stderr := passiveOn(t, p, "-w", "-", "-c", "50")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	tcpdump := p.A.Command(testenv.Tool(t, "tcpdump"), "-nr", "-")
	tcpdump.Stdin = strings.NewReader(stdout)
	if out, err := tcpdump.Output(); err != nil || strings.Count(string(out), "UDP") != 50 {
		t.Errorf("tcpdump reads %d packets, not 50: %v", strings.Count(string(out), "UDP"), err)
	}
	if status, _, stderr = passiveOn(t, p, "-c", "70"); status != 0 || !strings.Contains(stderr, "70 packets captured") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if status, _, stderr = passiveOn(t, p, "-w", file, "-C", "100k", "-c", "1200"); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	files, _ := filepath.Glob(file + "*")
	packets := 0
	for _, name := range files {
		packets += strings.Count(p.A.Run(t, "tcpdump", "-nr", name), "UDP")
	}
	if len(files) < 2 || packets != 1200 {
		t.Errorf("%d files with %d packets", len(files), packets)
	}
	for flags, want := range map[string]string{"--queues 1": "--queues", "--buffer-size 1": "--buffer-size: 1 is not from 2MiB", "--layout slot": "--layout", "--steer": "--steer"} {
		if status, _, stderr := passiveOn(t, p, append(strings.Fields(flags), "-w", file, "udp")...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d: %s", flags, status, stderr)
		}
	}
}

// TestCapturePassiveUnprivileged: a user with CAP_NET_RAW and nothing else captures, and the process has no other
// right.
func TestCapturePassiveUnprivileged(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	testenv.HugePages(t, 8<<20)
	dir := testenv.DiskDir(t)
	file := filepath.Join(dir, "out.pcapng")
	permit(t, file)
	binary := filepath.Join(dir, "unifiedd") // where that user may run it
	if self, err := os.ReadFile(program(t)); err != nil || os.WriteFile(binary, self, 0o755) != nil {
		t.Fatal(err)
	}
	args := []string{"--reuid=" + other, "--regid=" + other, "--clear-groups", "--inh-caps=-all,+net_raw", "--ambient-caps=-all,+net_raw", "--bounding-set=-all,+net_raw", "--no-new-privs"}
	cmd := p.B.Command(testenv.Tool(t, "setpriv"), append(args, "timeout", "60", binary, "capture", "-i", p.B.Ifname, "--reserve=false", "-w", file)...)
	errs := &bytes.Buffer{}
	cmd.Stderr = errs
	testenv.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	rights, pid := own(t, cmd)
	if rights.Effective != caps.NetRaw || rights.Permitted != caps.NetRaw || rights.Bounding != caps.NetRaw {
		t.Errorf("it has %v, may have %v, and could gain %v", rights.Effective, rights.Permitted, rights.Bounding)
	}
	testenv.Wait(t, 30*time.Second, "packets", func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() > 64<<10
	})
	testenv.Must(t, unix.Kill(pid, unix.SIGINT))
	if err := <-ended; err != nil || !strings.Contains(errs.String(), "packets captured") {
		t.Errorf("%v: %s", err, errs)
	}
	if n := strings.Count(p.A.Run(t, "tcpdump", "-nr", file), "UDP"); n == 0 { // on a busy machine a few: each write is padded
		t.Error("the file has no packets")
	}
}

// TestCapturePassiveRights: root starts a capture, and the process that captures has CAP_NET_RAW and nothing else,
// also for one direction. Where root may not raise the limit of locked memory, it keeps
// CAP_IPC_LOCK beside.
func TestCapturePassiveRights(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	want := caps.NetRaw
	self, err := caps.Self()
	var limit unix.Rlimit
	if err != nil || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		t.Fatal("what may this process do?", err)
	}
	if !self.Effective.Has(caps.SysResource) && limit.Max < 128<<20 {
		want |= caps.IPCLock
	}
	for _, settings := range [][]string{nil, {"-Q", "in"}} {
		if testing.Short() && settings != nil {
			continue
		}
		file := filepath.Join(testenv.DiskDir(t), "out.pcapng")
		s := facing(t, command(t, &p.B, append(append([]string{"capture", "-i", p.B.Ifname}, settings...), "-w", file)...), func() bool {
			out, _ := exec.Command("tcpdump", "-nr", file).Output() // fails while there is no whole packet
			return strings.Contains(string(out), "UDP")
		})
		if s.Effective != want || s.Permitted != want || s.Bounding.Minus(want) != 0 || !s.NoNewPrivs || s.UID.Effective == 0 {
			t.Errorf("%v: user %d has %v, may have %v, and could gain %v", settings, s.UID.Effective, s.Effective, s.Permitted, s.Bounding)
		}
	}
}
