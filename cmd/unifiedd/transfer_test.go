package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// receiving is a receive command that listens.
type receiving struct {
	cmd *exec.Cmd
	log *safeBuffer
}

// safeBuffer collects the output of a process while it is read.
type safeBuffer struct{ file *os.File }

func newSafeBuffer(t *testing.T) *safeBuffer {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "log")
	testenv.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return &safeBuffer{f}
}

func (b *safeBuffer) String() string {
	text, _ := os.ReadFile(b.file.Name()) // the file is there
	return string(text)
}

// small are flags for little memory.
var small = []string{"--pages", "ordinary", "--piece", "1MiB", "--memory", "4MiB"}

// receiveIn starts a receive command in end B. The end of the test ends it.
func receiveIn(t *testing.T, p *testenv.Pair, args ...string) *receiving {
	t.Helper()
	r := &receiving{log: newSafeBuffer(t)}
	r.cmd = commandAsIs(t, &p.B, nil, append(append([]string{"receive", "--rdma", "roce:" + p.B.Ifname}, small...), args...)...)
	r.cmd.Stderr = r.log.file
	testenv.Must(t, r.cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(unix.SIGTERM) // it may have ended
		if err := <-ended; err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Error(err)
		}
	})
	testenv.Wait(t, 30*time.Second, "the receiver to listen", func() bool {
		if strings.Contains(r.log.String(), "listening") {
			return true
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the receiver has ended: %v: %s", err, r.log)
		default:
		}
		return false
	})
	return r
}

// sendFrom runs a send command in end A to its end.
func sendFrom(t *testing.T, p *testenv.Pair, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return finish(t, commandAsIs(t, &p.A, nil, append(append([]string{"send", "--rdma", "roce:" + p.A.Ifname}, small...), args...)...))
}

// roomy makes a directory that every user may use.
func roomy(t *testing.T) string {
	t.Helper()
	dir := testenv.DiskDir(t)
	reach(t, dir)
	testenv.Must(t, os.Chmod(dir, 0o777))
	return dir
}

// TestSend: a file is copied. Both sides print the same checksum, and that nothing was copied here. Without a terminal
// there is no progress.
func TestSend(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	from, to := roomy(t), roomy(t)
	source := filepath.Join(from, "disk.img")
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	testenv.Must(t, os.WriteFile(source, want, 0o640), os.Chtimes(source, time.Unix(1e9, 0), time.Unix(1e9, 0)))
	r := receiveIn(t, p, "--once", to)
	status, stdout, stderr := sendFrom(t, p, "-t", "-p", source, p.B.IP.String())
	if status != 0 || stdout != "" || strings.Contains(stderr, "\r") || !strings.Contains(stderr, "sent 16777216 bytes") || !strings.Contains(stderr, "copies per byte: ours 0,") {
		t.Fatalf("status %d, %q, %s", status, stdout, stderr)
	}
	sum := regexp.MustCompile(`checksum: ([0-9a-f]{64})`).FindStringSubmatch(stderr)
	testenv.Wait(t, 30*time.Second, "the receiver to end", func() bool { return strings.Contains(r.log.String(), "copies per byte: ours 0") })
	if sum == nil || !strings.Contains(r.log.String(), "disk.img: 16777216 bytes") || !strings.Contains(r.log.String(), "checksum "+sum[1]) || !strings.Contains(r.log.String(), "1 copy complete") {
		t.Errorf("the sender says %v, and the receiver %s", sum, r.log)
	}
	if _, err := hex.DecodeString(sum[1]); err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(filepath.Join(to, "disk.img"))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes were copied: %v", len(got), err)
	}
	if info, err := os.Stat(filepath.Join(to, "disk.img")); err != nil || info.Mode() != 0o640 || info.ModTime().Unix() != 1e9 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestSendStatus: the exit status says why there is no copy.
func TestSendStatus(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	from, to := roomy(t), roomy(t)
	source := filepath.Join(from, "file")
	testenv.Must(t, os.WriteFile(source, make([]byte, 64<<20), 0o644))
	receiveIn(t, p, "--keep-free", "1000TiB", to)
	node := p.B.IP.String()
	for name, c := range map[string]struct {
		args   []string
		status int
		says   []string
	}{
		"no receiver": {[]string{source, node + ":1"}, exitFailed, []string{source, "connection refused"}},
		"bad name":    {[]string{"--as", "../x", source, node}, exitRefused, []string{source, "../x"}},
		"no space":    {[]string{source, node}, exitSpace, []string{source, "stay free"}},
		"directory":   {[]string{from, node}, exitFailed, []string{from, "neither a file nor a block device"}},
		"no source":   {[]string{filepath.Join(from, "missing"), node}, exitFailed, []string{"missing", "no such file"}},
		"no device":   {[]string{"--rdma", "roce:nowhere", source, node}, exitFailed, []string{"nowhere"}},
		"limit":       {[]string{"--limit", "fast", source, node}, exitUsage, []string{"--limit", "fast"}},
		"piece":       {[]string{"--piece", "3MiB", source, node}, exitUsage, []string{"--piece 3MiB", "power of two"}},
		"memory":      {[]string{"--memory", "1MiB", source, node}, exitUsage, []string{"--memory 1MiB"}},
		"half of TLS": {[]string{"--cert", "x", source, node}, exitUsage, []string{"ca", "key"}},
		"one":         {[]string{source}, exitUsage, []string{"missing after", "NODE"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, stderr := sendFrom(t, p, c.args...)
			if status != c.status {
				t.Errorf("status %d, want %d: %s", status, c.status, stderr)
			}
			for _, text := range c.says {
				if !strings.Contains(stderr, text) {
					t.Errorf("%q is not in %s", text, stderr)
				}
			}
		})
	}
	if left := inDir(t, to); len(left) != 0 {
		t.Errorf("there are %v", left)
	}
}

// TestSendChangesAndLoss: a source that changes ends with its status, and so does a receiver that goes away. What it has is in
// its status.
func TestSendChangesAndLoss(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	from, to := roomy(t), roomy(t)
	source := filepath.Join(from, "file")
	testenv.Must(t, os.WriteFile(source, make([]byte, 64<<20), 0o644))
	r := receiveIn(t, p, to)
	late := time.AfterFunc(2*time.Second, func() { _ = os.WriteFile(source, make([]byte, 64<<20), 0o644) })
	defer late.Stop()
	if status, _, stderr := sendFrom(t, p, "--limit", "8MiB", source, p.B.IP.String()); status != exitChanged || !strings.Contains(stderr, "has changed") {
		t.Errorf("status %d: %s", status, stderr)
	}
	cmd := commandAsIs(t, &p.A, nil, append(append([]string{"send", "--rdma", "roce:" + p.A.Ifname}, small...), "--limit", "8MiB", "--timeout", "8s", source, p.B.IP.String())...)
	log := newSafeBuffer(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the second sender: %s", log)
		}
	})
	cmd.Stderr = log.file
	testenv.Must(t, cmd.Start())
	testenv.Wait(t, 30*time.Second, "something to be durable", func() bool {
		_, out, _ := finish(t, commandAsIs(t, &p.B, nil, "receive", "--status", to))
		return regexp.MustCompile(`incomplete +[1-9]`).MatchString(out)
	})
	testenv.Must(t, r.cmd.Process.Signal(unix.SIGTERM))
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitLost || !strings.Contains(log.String(), "send it again") {
		t.Errorf("%v: %s", err, log)
	}
	if status, out, _ := finish(t, commandAsIs(t, &p.B, nil, "receive", "--status", to)); status != exitFailed || !strings.Contains(out, "of 67108864 bytes are durable") {
		t.Errorf("status %d: %s", status, out)
	}
}

// TestSendProgress: on a terminal a line shows bytes, percent, rate and time, as rsync does.
func TestSendProgress(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	from, to := roomy(t), roomy(t)
	source := filepath.Join(from, "file")
	testenv.Must(t, os.WriteFile(source, make([]byte, 24<<20), 0o644))
	receiveIn(t, p, to)
	term, other := newTerminal(t)
	cmd := commandAsIs(t, &p.A, nil, append(append([]string{"send", "--rdma", "roce:" + p.A.Ifname}, small...), "--limit", "8MiB", source, p.B.IP.String())...)
	cmd.Stderr = other
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, term.said())
	}
	line := regexp.MustCompile(`\r +[0-9,]{9,} +[0-9]{1,3}% +[0-9.]+[KMG]iB/s +[0-9]+:[0-9]{2}:[0-9]{2}`)
	testenv.Wait(t, 10*time.Second, "the last line", func() bool { return strings.Contains(term.said(), "25,165,824 100%") })
	if n := len(line.FindAllString(term.said(), -1)); n < 3 {
		t.Errorf("%d lines in %q", n, term.said())
	}
}

// TestProgressLine: the parts of the line.
func TestProgressLine(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	p := newProgress(&out, 4<<30, 1<<30, now)
	for i := 1; i <= 8; i++ {
		now = now.Add(time.Second)
		p.tick(1<<30+uint64(i)*(100<<20), now, "")
	}
	lines := strings.Split(out.String(), "\r")
	if got, want := lines[len(lines)-1], "  1,912,602,624  44%  100.00MiB/s    0:00:22"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.tick(1<<30+800<<20, now.Add(10*time.Second), "waiting")
	if lines := strings.Split(out.String(), "\r"); !strings.HasSuffix(lines[len(lines)-1], "(waiting)") {
		t.Errorf("%q", lines[len(lines)-1])
	}
	p.end(4<<30, 3<<30, now.Add(22*time.Second))
	if lines := strings.Split(out.String(), "\r"); !strings.HasPrefix(lines[len(lines)-1], "  4,294,967,296 100%  102.40MiB/s    0:00:30") || !strings.HasSuffix(out.String(), "\n") {
		t.Errorf("%q", lines[len(lines)-1])
	}
	for rate, want := range map[float64]string{0: "0.00KiB/s", 1536: "1.50KiB/s", 3 << 30: "3.00GiB/s"} {
		if got := rateText(rate); got != want {
			t.Errorf("%v is %q", rate, got)
		}
	}
	if got := clockText(100*time.Hour + 61*time.Second); got != " 100:01:01" {
		t.Errorf("%q", got)
	}
	if got := strings.Join([]string{status.Grouped(0), status.Grouped(999), status.Grouped(1000), status.Grouped(1234567)}, " "); got != "0 999 1,000 1,234,567" {
		t.Errorf("%q", got)
	}
}

// TestTransferRights: the process that takes bytes of others has only the rights that it needs, and files belong to its
// user.
func TestTransferRights(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	to := roomy(t)
	r := receiveIn(t, p, "-Z", "nobody", to)
	s, _ := own(t, r.cmd)
	if s.UID.Effective != 65534 || s.Reach() != privsep.Needed || s.Effective != privsep.Needed || !s.NoNewPrivs || s.Seccomp != 2 {
		t.Errorf("it is %+v", s)
	}
	source := filepath.Join(roomy(t), "file")
	testenv.Must(t, os.WriteFile(source, []byte("some bytes"), 0o644))
	if status, _, stderr := sendFrom(t, p, "-Z", "nobody", source, p.B.IP.String()); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	info, err := os.Stat(filepath.Join(to, "file"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 65534 {
		t.Errorf("%v, %v", info, err)
	}
	testenv.Must(t, os.Chmod(source, 0o600))
	if status, _, stderr := sendFrom(t, p, "-Z", "nobody", source, p.B.IP.String()); status != exitFailed || !strings.Contains(stderr, "-Z root") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if need := privsep.ForTransfer("mlx5_0", &umem.Config{}, "nobody").Keep; need != caps.IPCLock {
		t.Errorf("a card takes %v", need)
	}
}

// TestTransferRegion: the region of a transfer can be made for each device, piece and number of transfers, and has the frames
// that the transfers take.
func TestTransferRegion(t *testing.T) {
	for _, name := range []string{"mlx5_0", "roce:lo"} {
		for _, piece := range []uint64{1 << 20, 4 << 20, 64 << 20, 1 << 30} {
			for _, transfers := range []uint64{1, 4} {
				f := transferFlags{rdma: name, piece: piece, window: 2}
				c := f.region(transfers)
				if err := c.CheckDevice(); err != nil {
					t.Errorf("%s, pieces of %d bytes, %d transfers: %v", name, piece, transfers, err)
				}
				_, packets := device.ReceiveDepth(name, packetFrames)
				if frames := (c.Size - c.Extents*piece) &^ (piece - 1); frames < (uint64(packets)+messageFrames*transfers)*frameBytes {
					t.Errorf("%s, pieces of %d bytes, %d transfers: frames have %d bytes", name, piece, transfers, frames)
				}
			}
		}
	}
}

// TestForeignNames: names that a sender, or who may add interfaces, has chosen cannot change the terminal, nor make lines
// that look like the program's.
func TestForeignNames(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	from, to := roomy(t), roomy(t)
	source := filepath.Join(from, "plain")
	testenv.Must(t, os.WriteFile(source, []byte("data"), 0o644))
	r := receiveIn(t, p, to)
	for _, name := range []string{"x\x1b]0;owned\a\x1b[2J", "x\nreal.img: 10 bytes from 10.9.9.9:1", "\u009b2J"} {
		if status, _, stderr := sendFrom(t, p, "-q", "--as", name, source, p.B.IP.String()); status != 0 {
			t.Errorf("%q: status %d, %s", name, status, stderr)
		}
	}
	testenv.Wait(t, 30*time.Second, "three copies", func() bool { return strings.Count(r.log.String(), "checksum") == 3 })
	said := r.log.String()
	if strings.ContainsAny(said, "\x1b\a\u009b") || strings.Contains(said, "\nreal.img") || !strings.Contains(said, `"x\x1b]0;owned\a\x1b[2J": 4 bytes from`) {
		t.Errorf("%q", said)
	}

	record, err := os.ReadFile(filepath.Join(to, "x\x1b]0;owned\a\x1b[2J"))
	if err != nil || string(record) != "data" {
		t.Errorf("%q: %v", record, err)
	}
	var list bytes.Buffer
	p.B.Do(t, func() {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "d\x1b[31m"}, PeerName: "other"}
		testenv.Must(t, netlink.LinkAdd(link))
		defer func() { testenv.Check(t, netlink.LinkDel(link)) }()
		testenv.Must(t, listInterfaces(&list))
	})
	if strings.Contains(list.String(), "\x1b") || !strings.Contains(list.String(), `"d\x1b[31m"`) {
		t.Errorf("%q", list.String())
	}

	var text bytes.Buffer
	testenv.Must(t, printRawStatus(&text, []byte(`{"flows": [{"name": "f", "state": "waiting", "from": "d\u001b[31m", "error": "one\ntwo\u001b[31m", "feed": {"session": "\u001b[2J\nflow x"}}]}`)))
	if strings.Contains(text.String(), "\x1b") || strings.Contains(text.String(), "\nflow x") || !strings.Contains(text.String(), "one\n") {
		t.Errorf("%q", text.String())
	}
}
