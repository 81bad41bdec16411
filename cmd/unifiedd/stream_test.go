package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCaptureReaderGone: when the reader of the output closes its end, the capture prints its
// summary and frees its resources, as on a signal.
func TestCaptureReaderGone(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	r, w, err := os.Pipe()
	testenv.Must(t, err)
	var stderr bytes.Buffer
	cmd := command(t, &p.B, "capture", "-i", p.B.Ifname, "--take", "--ring", "512", "-w", "-")
	cmd.Stdout, cmd.Stderr = w, &stderr
	testenv.Must(t, cmd.Start())
	_, err = r.Read(make([]byte, 100))
	testenv.Check(t, errors.Join(err, r.Close(), w.Close()))
	err = cmd.Wait()
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("it ends with %v", err)
	}
	for _, want := range []string{"broken pipe", "packets captured"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("it does not say %q: %s", want, stderr.String())
		}
	}
}

// TestCaptureReaderStuck: a signal ends a capture even if the reader of its output has stopped reading.
func TestCaptureReaderStuck(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	r, w, err := os.Pipe()
	testenv.Must(t, err)
	defer r.Close()
	defer w.Close()
	var stderr bytes.Buffer
	cmd := command(t, &p.B, "capture", "-i", p.B.Ifname, "--take", "--ring", "512", "-w", "-", "-Z", "daemon") // that user cannot open our pipe
	cmd.Stdout, cmd.Stderr = w, &stderr
	testenv.Must(t, cmd.Start())
	status := make(chan int, 1)
	go func() { _ = cmd.Wait(); status <- cmd.ProcessState.ExitCode() }()
	testenv.Wait(t, 10*time.Second, "a full pipe", func() bool {
		fds := []unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		return n == 0 && err == nil
	})
	testenv.Must(t, cmd.Process.Signal(unix.SIGTERM))
	select {
	case got := <-status:
		if got != exitFailed || !strings.Contains(stderr.String(), "packets captured") {
			t.Errorf("status %d: %s", got, stderr.String())
		}
	case <-time.After(readerPatience + testenv.Within(10*time.Second)):
		t.Fatal("it does not end")
	}
}
