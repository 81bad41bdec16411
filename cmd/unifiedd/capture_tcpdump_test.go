package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCaptureFileSizes: with -C no file has more bytes than the limit, and only slightly fewer,
// even if the limit is below a mebibyte.
func TestCaptureFileSizes(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	heavily(t, p)
	for _, c := range []struct {
		size, layout string
		bytes        int64
		packets      int
	}{{"100k", "packed", 100 << 10, 1000}, {"100k", "slot", 100 << 10, 1000}, {"1", "packed", 1e6, 4000}, {"3m", "packed", 3 << 20, 6000}, {"4k", "packed", 4 << 10, 20}} {
		t.Run(c.size+" "+c.layout, func(t *testing.T) {
			if c.size != "100k" || c.layout != "packed" {
				testenv.Long(t, "other sizes")
			}
			dir := testenv.DiskDir(t)
			status, _, stderr := captureOn(t, p, "-w", filepath.Join(dir, "out"), "-C", c.size, "--layout", c.layout, "-c", fmt.Sprint(c.packets))
			if status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			names, packets := inDir(t, dir), 0
			for _, name := range names {
				file := filepath.Join(dir, name)
				info, err := os.Stat(file)
				testenv.Must(t, err)
				last := name == fmt.Sprintf("out%d", len(names)-1)
				if n := info.Size(); n > c.bytes || n < c.bytes*3/4 && !last && c.packets > 100 {
					t.Errorf("%s has %d bytes of %d", name, n, c.bytes)
				}
				packets += strings.Count(p.A.Run(t, "tcpdump", "-nr", file), "UDP")
			}
			if least := int(int64(c.packets) * 1400 / c.bytes / 2); packets != c.packets || len(names) < max(least, 2) {
				t.Errorf("%d packets of %d in %d files", packets, c.packets, len(names))
			}
		})
	}
}

// TestCapturePostrotate: the command of -z runs for each file once it is complete.
func TestCapturePostrotate(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	heavily(t, p)
	dir, script := testenv.DiskDir(t), filepath.Join(t.TempDir(), "script")
	testenv.Must(t, os.WriteFile(script, []byte("#!/bin/sh\ngzip \"$1\"\n"), 0o755))
	if status, _, stderr := captureOn(t, p, "-w", filepath.Join(dir, "out"), "-C", "1", "-z", script, "-c", "3000"); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	testenv.Wait(t, 20*time.Second, "all files to be compressed", func() bool {
		names := inDir(t, dir)
		for _, name := range names {
			if !strings.HasSuffix(name, ".gz") {
				return false
			}
		}
		return len(names) > 3
	})
	packets := 0
	for _, name := range inDir(t, dir) {
		packets += strings.Count(p.A.Run(t, "sh", "-c", "zcat "+filepath.Join(dir, name)+" | tcpdump -nr -"), "UDP")
	}
	if packets != 3000 {
		t.Errorf("%d packets of 3000 are in the files", packets)
	}
}

// TestCaptureSignal: on SIGUSR1 a capture prints its progress.
func TestCaptureSignal(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	cmd := p.B.Command(program(t), "capture", "-Z", "root", "-i", p.B.Ifname, "-c", "200")
	said := filepath.Join(t.TempDir(), "stderr")
	errs, err := os.Create(said)
	testenv.Must(t, err)
	defer errs.Close()
	cmd.Stderr = errs
	testenv.Must(t, cmd.Start())
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	testenv.Wait(t, 20*time.Second, "the capture to begin", func() bool { return strings.Contains(string(read(t, said)), "capturing on") })
	testenv.Must(t, cmd.Process.Signal(syscall.SIGUSR1))
	err = cmd.Wait()
	if got := string(read(t, said)); err != nil || !strings.Contains(got, " bytes, 0 lost\n") || !strings.Contains(got, "200 packets captured") {
		t.Errorf("%v: %s", err, got)
	}
}

// TestTcpdumpHabits: command lines that tcpdump's users know work as expected, or fail with the
// reason and the remedy.
func TestTcpdumpHabits(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"list":            {[]string{"capture", "-D"}, 0, ".lo [Up, Running, Loopback]\n"},
		"any":             {[]string{"capture", "-i", "any"}, exitUsage, "-i eth0 -i eth1"},
		"any among some":  {[]string{"capture", "-i", "lo", "-i", "any"}, exitUsage, "-i eth0 -i eth1"},
		"version":         {[]string{"capture", "--version"}, 0, "unifiedd "},
		"its version":     {[]string{"--version"}, 0, "unifiedd "},
		"command alone":   {[]string{"capture", "-i", "lo", "-w", "x", "-z", "true"}, exitUsage, "-C or -G"},
		"command missing": {[]string{"capture", "-i", "lo", "-w", "x", "-C", "1", "-z", "no-such-program"}, exitUsage, "no-such-program"},
		"numeric":         {[]string{"capture", "-nn", "-i", "no-such-link"}, exitFailed, "no-such-link"},
		"numeric export":  {[]string{"export", "-n", "-r", "no-such-file"}, exitFailed, "no-such-file"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := finish(t, exec.Command("timeout", append([]string{"60", program(t)}, c.args...)...))
			if status != c.status || !strings.Contains(out+errs, c.want) {
				t.Errorf("status %d, want %d and %q: %s%s", status, c.status, c.want, out, errs)
			}
		})
	}
}

// TestStopOnFullDisk: a capture that cannot write at its end reports what it waits for, and that a
// second Ctrl-C ends it at once. The second Ctrl-C does.
func TestStopOnFullDisk(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	heavily(t, p)
	dir := t.TempDir()
	testenv.Must(t, syscall.Mount("none", dir, "tmpfs", 0, "size=2m"))
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	said := filepath.Join(t.TempDir(), "stderr")
	errs, err := os.Create(said)
	testenv.Must(t, err)
	defer errs.Close()
	cmd := p.B.Command(program(t), "capture", "-Z", "root", "-q", "-i", p.B.Ifname, "-w", filepath.Join(dir, "out"))
	cmd.Stderr = errs
	testenv.Must(t, cmd.Start())
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	says := func(what string) func() bool {
		return func() bool { return strings.Contains(string(read(t, said)), what) }
	}
	testenv.Wait(t, 20*time.Second, "the disk to be full", says("no space left"))
	testenv.Must(t, cmd.Process.Signal(os.Interrupt))
	testenv.Wait(t, 10*time.Second, "what it waits for", says("another Ctrl-C ends at once"))
	begun := time.Now()
	testenv.Must(t, cmd.Process.Signal(os.Interrupt))
	err = cmd.Wait()
	if took := time.Since(begun); err == nil || took > 5*time.Second || !says("second signal: ending at once")() {
		t.Errorf("it ended after %v with %v: %s", took, err, read(t, said))
	}
}
