package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The bars.
const (
	rateBar = 1.0 // at least as fast
	costBar = 1.0 // for no more processor time
)

// sample is the result of one copy.
type sample struct {
	bytes float64
	wall  time.Duration
	busy  time.Duration // processor time
}

// bed is two machines, and what is copied.
type bed struct {
	*bench.Report
	pair     *testenv.Pair
	unifiedd string
	rsync    string
	source   string
	size     int
	to       [2]string // directories of ours and of theirs
	servers  [2]*exec.Cmd
}

// TestAgainstRsync compares send and receive with rsync.
func TestAgainstRsync(t *testing.T) {
	b := newBed(bench.Start(t, "transfer", "copying a file", "unifiedd send", "rsync"))
	version, _, _ := strings.Cut(string(run(t, b.rsync, "--version")), "protocol")
	b.Theirs = strings.TrimSpace(version)
	bench.Compare(b.Report, &bench.Contest[sample]{Name: fmt.Sprintf("one file of %d MiB", b.size>>20), Programs: []bench.Run[sample]{b.ours, b.theirs}, Measures: []bench.Measure[sample]{
		{Metric: "rate", Unit: "MB/s", Better: bench.More, Bar: rateBar, Theirs: 1, Of: func(s sample) float64 { return s.bytes / s.wall.Seconds() / 1e6 }},
		{Metric: "processors", Unit: "ms for each GB", Better: bench.Less, Bar: costBar, Theirs: 1, Of: func(s sample) float64 { return s.busy.Seconds() * 1e12 / s.bytes }},
	}})
	b.Finish(
		"Copies in turn. veth with an MTU of 9000 between two namespaces; RoCE in software on one side, TCP with the offloads of veth on the other.",
		"Source and copies are on one disk, and the source is not in the page cache. Both copies are durable at the end.",
		"Processor time is that of the sending process and of the receiving one, not that of the kernel's interrupts.")
}

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return out
}

func newBed(t *bench.Report) *bed {
	t.Helper()
	testenv.HugePages(t, 96<<20)
	b := &bed{Report: t, unifiedd: testenv.Program(t, "cmd/unifiedd"), rsync: testenv.Tool(t, "rsync"), size: t.Form.Share(1 << 30)}
	b.pair = testenv.NewPair(t, testenv.PairOptions{MTU: 9000})
	for _, e := range []*testenv.End{&b.pair.A, &b.pair.B} {
		e.Run(t, "ethtool", "-K", e.Ifname, "tx", "on", "rx", "on", "tso", "on", "gso", "on", "gro", "on")
	}
	dir := testenv.DiskDir(t)
	b.source = filepath.Join(dir, "source")
	fill(t, b.source, int64(b.size))
	for i, name := range []string{"ours", "theirs"} {
		b.to[i] = filepath.Join(dir, name)
		testenv.Must(t, os.Mkdir(b.to[i], 0o755))
	}
	b.servers[0] = b.serve(b.unifiedd, "receive", "--rdma", "roce:"+b.pair.B.Ifname, "--senders", "1", "-Z", "root", b.to[0])
	conf := filepath.Join(dir, "rsyncd.conf")
	text := fmt.Sprintf("use chroot = no\nuid = root\ngid = root\n[in]\npath = %s\nread only = no\n", b.to[1])
	testenv.Must(t, os.WriteFile(conf, []byte(text), 0o644))
	b.servers[1] = b.serve(b.rsync, "--daemon", "--no-detach", "--config="+conf, "--port=8730")
	return b
}

// fill makes a source, of bytes that do not compress.
func fill(t testing.TB, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	testenv.Must(t, err)
	defer f.Close()
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{1}), size); err != nil {
		t.Fatal(err)
	}
	testenv.Must(t, f.Sync())
}

// serve starts a server in end B until the end of the test.
func (b *bed) serve(name string, args ...string) *exec.Cmd {
	b.Helper()
	cmd := b.pair.B.Command(name, args...)
	var log bytes.Buffer
	cmd.Stderr, cmd.Stdout = &log, &log
	testenv.Must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil && b.Failed() {
			b.Logf("%s: %v: %s", name, err, log.String())
		}
	})
	return cmd
}

// ours copies by send.
func (b *bed) ours(ctx context.Context) (sample, error) {
	return b.copy(ctx, 0, b.unifiedd, "send", "--rdma", "roce:"+b.pair.A.Ifname, "-Z", "root", "-q", "--times", b.source, b.pair.B.IP.String())
}

// theirs copies by rsync.
func (b *bed) theirs(ctx context.Context) (sample, error) {
	return b.copy(ctx, 1, b.rsync, "--whole-file", "--times", "--fsync", b.source, fmt.Sprintf("rsync://%v:8730/in/", b.pair.B.IP))
}

// copy makes one copy. The server may only be starting at the first one.
func (b *bed) copy(ctx context.Context, k int, name string, args ...string) (s sample, err error) {
	copied := filepath.Join(b.to[k], "source")
	for try := 0; ; try++ {
		_ = os.Remove(copied) // there is none at first
		if err := drop(b.source); err != nil {
			return s, err
		}
		busy := busyBelow(b.servers[k].Process.Pid)
		out, used, err := b.timed(ctx, name, args...)
		if err != nil {
			if try < 50 {
				time.Sleep(200 * time.Millisecond)
				continue
			}
			return s, fmt.Errorf("%w: %s", err, out)
		}
		s = sample{bytes: float64(b.size), wall: used.Wall, busy: used.CPU + busyBelow(b.servers[k].Process.Pid) - busy}
		break
	}
	info, err := os.Stat(copied)
	if err == nil && info.Size() != int64(b.size) {
		err = fmt.Errorf("the copy has %d bytes", info.Size())
	}
	return s, err
}

// timed runs a program in end A.
func (b *bed) timed(ctx context.Context, name string, args ...string) ([]byte, bench.Usage, error) {
	cmd := b.pair.A.Command(name, args...)
	return bench.RunProcess(ctx, -1, cmd.Path, cmd.Args[1:]...)
}

// drop drops the pages of a file from the page cache.
func drop(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}

// busyBelow is the processor time of a process and of those below it, also of those that it has waited for: proc_pid_stat(5).
func busyBelow(pid int) (sum time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	for _, field := range strings.Fields(rest)[11:15] {
		n, _ := strconv.ParseInt(field, 10, 64)
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range tasks {
		text, _ := os.ReadFile(name) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				sum += busyBelow(child)
			}
		}
	}
	return sum
}
