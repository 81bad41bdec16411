package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// heavily sends packets of 1400 bytes from end A until the test ends, some megabytes a second.
func heavily(t *testing.T, p *testenv.Pair) {
	t.Helper()
	frames := testenv.Stream(&p.A, &p.B, 5000, 0, 100, 1400)
	sender := testenv.NewSender(t, &p.A)
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for {
			for _, f := range frames {
				_, _ = sender.Send(f) // the interface may be gone
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
}

// inDir returns the names of the files in a directory, including hidden ones.
func inDir(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testenv.Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// capinfos returns the value that capinfos prints after a heading and the text between.
func capinfos(t *testing.T, file, heading, between string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "capinfos"), "-M", file).CombinedOutput()
	if err != nil {
		t.Fatalf("capinfos %s: %v: %s", file, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(line, between); ok && strings.TrimSpace(name) == heading {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestCaptureSnaplen: a capture with a snap length keeps the beginning of each packet, and its
// original length.
func TestCaptureSnaplen(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	dir := testenv.DiskDir(t)
	for _, layout := range []string{"packed", "slot"} {
		if testing.Short() && layout == "slot" {
			continue
		}
		file := filepath.Join(dir, layout)
		status, _, stderr := captureOn(t, p, "-w", file, "-c", "50", "-s", "64", "--layout", layout)
		if status != 0 {
			t.Fatalf("status %d: %s", status, stderr)
		}
		out, err := exec.Command(testenv.Tool(t, "tshark"), "-r", file, "-T", "fields", "-e", "frame.cap_len", "-e", "frame.len").Output()
		if want := strings.Repeat("64\t200\n", 50); err != nil || string(out) != want {
			t.Errorf("%s: tshark reads %q, not 50 times 64 of 200 bytes: %v", layout, out, err)
		}
		if n := capinfos(t, file, "Capture length", "="); n != "64" {
			t.Errorf("%s: capinfos says the snapshot length is %q", layout, n)
		}
	}
	status, stdout, stderr := captureOn(t, p, "-w", "-", "-c", "20", "-s", "60")
	tshark := exec.Command(testenv.Tool(t, "tshark"), "-r", "-", "-T", "fields", "-e", "frame.cap_len", "-e", "frame.len")
	tshark.Stdin = strings.NewReader(stdout)
	if out, err := tshark.Output(); status != 0 || err != nil || string(out) != strings.Repeat("60\t200\n", 20) {
		t.Errorf("through a pipe: status %d, tshark reads %q: %v, %s", status, out, err, stderr)
	}
}

// TestCaptureFileCount: with -C and -W files have the names that tcpdump gives them, and a ring
// keeps at most the requested number.
func TestCaptureFileCount(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	heavily(t, p)
	ours, theirs := testenv.DiskDir(t), t.TempDir()
	tcpdump := p.B.Command(testenv.Tool(t, "tcpdump"), "-i", p.B.Ifname, "-n", "-Z", "root", "-C", "1", "-W", "11", "-c", "12000", "-w", filepath.Join(theirs, "out"))
	if out, err := tcpdump.CombinedOutput(); err != nil {
		t.Fatalf("tcpdump: %v: %s", err, out)
	}
	status, _, stderr := captureOn(t, p, "-w", filepath.Join(ours, "out"), "-C", "1", "-W", "11", "-c", "12000", "--mode", "0604", "-Z", "daemon")
	if status != 0 || !strings.Contains(stderr, "12000 packets captured") {
		t.Fatalf("status %d: %s", status, stderr)
	}
	names, want := inDir(t, ours), inDir(t, theirs)
	if fmt.Sprint(names) != fmt.Sprint(want) || len(want) != 11 {
		t.Errorf("our files are %v, and tcpdump's are %v", names, want)
	}
	packets := 0
	for _, name := range names {
		file := filepath.Join(ours, name)
		info, err := os.Stat(file)
		testenv.Must(t, err)
		if st := info.Sys().(*syscall.Stat_t); info.Size() > 1<<20 || info.Mode().Perm() != 0o604 || st.Uid != 1 || st.Gid != 1 {
			t.Errorf("%s: %d bytes, %v, user %d, group %d", name, info.Size(), info.Mode(), st.Uid, st.Gid)
		}
		n, err := strconv.Atoi(capinfos(t, file, "Number of packets", ":"))
		testenv.Check(t, err)
		packets += n
	}
	if packets < 12000/2 || packets >= 12000 {
		t.Errorf("%d packets of 12000 are in the newest 11 files", packets)
	}
}

// TestCaptureFileTimes: a capture begins a file every second, named after its time, and ends with
// the second file.
func TestCaptureFileTimes(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	dir := testenv.DiskDir(t)
	status, _, stderr := captureOn(t, p, "-w", filepath.Join(dir, "out-%Y%m%d-%H%M%S%%.pcapng"), "-G", "1", "-W", "2")
	if status != 0 || !strings.Contains(stderr, "; 0 lost") {
		t.Fatalf("status %d: %s", status, stderr)
	}
	names, packets := inDir(t, dir), 0
	for _, name := range names {
		if _, err := time.ParseInLocation("out-20060102-150405%.pcapng", name, time.Local); err != nil {
			t.Error(err)
		}
		packets += strings.Count(p.A.Run(t, "tcpdump", "-nr", filepath.Join(dir, name)), "UDP")
	}
	if want := fmt.Sprintf("%d packets captured", packets); len(names) != 2 || packets == 0 || !strings.Contains(stderr, want) {
		t.Errorf("%v have %d packets: %s", names, packets, stderr)
	}
}

func TestCaptureFilesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"to a pipe":        {[]string{"-w", "-", "-C", "1"}, "standard output"},
		"to nothing":       {[]string{"-G", "1"}, "name them by -w"},
		"of nothing":       {[]string{"-w", "x", "-W", "3"}, "-C or -G"},
		"no size":          {[]string{"-w", "x", "-C", "1x"}, "-C 1x"},
		"no conversion":    {[]string{"-w", "%Q", "-G", "1"}, "%Q"},
		"no mode":          {[]string{"-w", "x", "--mode", "999"}, "999"},
		"no user":          {[]string{"-w", "x", "-Z", "nobody-is-called-so"}, "nobody-is-called-so"},
		"no room":          {[]string{"-w", "x", "--keep-free", "200%"}, "200%"},
		"a pipe is a file": {[]string{"-w", "-", "--mode", "0600"}, "name it by -w"},
		"too long":         {[]string{"-w", "x", "-s", "262145"}, "256KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			if status := run(append([]string{"capture", "-i", "lo"}, c.args...), &out, &errs); status != exitUsage || !strings.Contains(errs.String(), c.want) {
				t.Errorf("status %d, and the error does not say %q: %s", status, c.want, errs.String())
			}
		})
	}
}
