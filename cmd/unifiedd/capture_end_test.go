package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCaptureToPipe: a capture can write to a named pipe that another program reads.
func TestCaptureToPipe(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	pipe := filepath.Join(t.TempDir(), "pipe")
	testenv.Must(t, unix.Mkfifo(pipe, 0o600))
	tcpdump := p.A.Command("timeout", "20", testenv.Tool(t, "tcpdump"), "-nr", pipe)
	read := make(chan int)
	go func() {
		got, _ := tcpdump.Output()
		read <- strings.Count(string(got), "UDP")
	}()
	if status, _, stderr := captureOn(t, p, "-w", pipe, "-c", "50"); status != 0 {
		t.Errorf("status %d: %s", status, stderr)
	}
	if n := <-read; n != 50 {
		t.Errorf("tcpdump reads %d packets, not 50", n)
	}
	if status, _, stderr := captureOn(t, p, "-w", "/dev/null", "-c", "10"); status != 0 {
		t.Errorf("to /dev/null: status %d: %s", status, stderr)
	}
}

// TestCaptureWithoutDirectIO: on a file system without direct I/O, as /tmp often is, the kernel
// copies, and the summary says so.
func TestCaptureWithoutDirectIO(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	dir, err := os.MkdirTemp("/dev/shm", "unifiedd-test-")
	testenv.Must(t, err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "out.pcapng")
	status, _, stderr := captureOn(t, p, "-w", file, "-c", "50")
	if status != 0 || !strings.Contains(stderr, "disk ") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if n := strings.Count(p.A.Run(t, "tcpdump", "-nr", file), "UDP"); n != 50 {
		t.Errorf("tcpdump reads %d packets, not 50", n)
	}
}

// TestCaptureFails: a capture that fails reports the error, exits with a failure status, and still
// prints its summary.
func TestCaptureFails(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	file := filepath.Join(testenv.DiskDir(t), "out.pcapng")
	deleted := make(chan struct{})
	go func() {
		defer close(deleted)
		awaitBytes(file)
		p.A.Delete(t)
	}()
	status, _, stderr := captureOn(t, p, "-w", file)
	<-deleted
	if status != exitFailed || !strings.Contains(stderr, "unifiedd: ") || !strings.Contains(stderr, p.B.Ifname) {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if !strings.Contains(stderr, "packets captured") {
		t.Errorf("there is no summary: %q", stderr)
	}
}

// TestCaptureFromScript: SIGINT ends a capture that a shell script started in the background, as it
// ends tcpdump, although the shell ignores SIGINT for such programs.
func TestCaptureFromScript(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	for _, user := range []string{"root", "nobody"} {
		said := filepath.Join(t.TempDir(), "stderr")
		errs, err := os.Create(said)
		testenv.Must(t, err)
		defer errs.Close()
		cmd := p.B.Command("bash", "-c", `trap "" INT; exec "$@"`, "capture", program(t), "capture", "-Z", user, "-i", p.B.Ifname)
		cmd.Stderr = errs
		testenv.Must(t, cmd.Start())
		timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		testenv.Wait(t, 20*time.Second, "the capture to begin", func() bool { return strings.Contains(string(read(t, said)), "capturing on") })
		testenv.Must(t, cmd.Process.Signal(unix.SIGINT))
		if err := cmd.Wait(); err != nil {
			t.Errorf("as %s: %v: %s", user, err, read(t, said))
		}
		timer.Stop()
	}
}

// awaitBytes waits until a file has content: the capture is then under way.
func awaitBytes(file string) {
	for range 2000 {
		if info, err := os.Stat(file); err == nil && info.Size() > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
