package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// cutPcap returns a pcap file of three packets whose last one lacks bytes, as a capture leaves it that is killed.
func cutPcap(lacks int) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = append(b, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0)
	for i := range 3 {
		for _, v := range []int{1_700_000_000 + i, i, 60 + i, 60 + i} {
			b = le.AppendUint32(b, uint32(v))
		}
		b = append(b, bytes.Repeat([]byte{byte(i)}, 60+i)...)
	}
	return b[:len(b)-lacks]
}

// TestExportCut: of a capture that ends early, or is damaged further on, the packets before are in the file, the
// message says where the damage is and how much is not exported, and the status is 1. Without any packet there is no file.
func TestExportCut(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	whole := cutPcap(0)
	broken := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(broken[24+76+77+8:], 1<<30) // the length of the third packet
	ng := filepath.Join(dir, "whole.pcapng")
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "whole"), whole, 0o600))
	var said bytes.Buffer
	if status := run([]string{"export", "-r", filepath.Join(dir, "whole"), "-w", ng}, &said, &said); status != 0 {
		t.Fatalf("status %d: %s", status, &said)
	}
	pcapng, err := os.ReadFile(ng)
	testenv.Must(t, err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(cutPcap(13))
	testenv.Must(t, err)
	testenv.Must(t, z.Close())
	for _, c := range []struct {
		name    string
		content []byte
		packets int
		says    []string
	}{
		{"in a packet", cutPcap(13), 2, []string{"at offset 177", "ends inside", "of its 242 bytes the last 65 are not exported"}},
		{"in a header", cutPcap(70), 2, []string{"at offset 177", "ends inside"}},
		{"in the second packet", cutPcap(3 + 78 + 20), 1, []string{"at offset 100", "ends inside"}},
		{"a length", broken, 2, []string{"at offset 177", "an impossible length"}},
		{"pcapng", pcapng[:len(pcapng)-9], 2, []string{"ends inside", "are not exported"}},
		{"compressed", packed.Bytes(), 2, []string{"at offset 177", "ends inside"}},
		{"compressed and cut", packed.Bytes()[:packed.Len()-8], 2, []string{"at offset 177", "unexpected EOF"}},
		{"in the first packet", cutPcap(3 + 78 + 77 + 20), 0, []string{"at offset 24"}},
	} {
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.pcapng")
		testenv.Must(t, os.WriteFile(in, c.content, 0o600))
		_ = os.Remove(out)
		var stdout, stderr bytes.Buffer
		status := run([]string{"export", "-r", in, "-w", out}, &stdout, &stderr)
		for _, want := range c.says {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: it does not say %q: %s", c.name, want, &stderr)
			}
		}
		_, missing := os.Stat(out)
		if status != exitFailed || (missing != nil) != (c.packets == 0) {
			t.Errorf("%s: status %d, %v: %s", c.name, status, missing, &stderr)
		}
		if c.packets == 0 {
			continue
		}
		all, err := testenv.ReadCapture(t, out)
		if err != nil || len(all) != c.packets {
			t.Errorf("%s: %d packets, not %d: %v", c.name, len(all), c.packets, err)
		}
		for i, p := range all {
			if len(p.Data) != 60+i || p.Time/1e9 != 1_700_000_000+int64(i) {
				t.Errorf("%s: packet %d has %d bytes of %v", c.name, i, len(p.Data), p.Time)
			}
		}
	}
}

// TestReplayDamaged: of a capture that ends early the packets before are sent, and the status is 1.
func TestReplayDamaged(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	in := filepath.Join(testenv.DiskDir(t), "in.pcap")
	testenv.Must(t, os.WriteFile(in, cutPcap(13), 0o644))
	status, stderr := replayOn(t, p, "--topspeed", in)
	if status != exitFailed || !strings.Contains(stderr, "2 packets sent") || !strings.Contains(stderr, "at offset 177") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// TestHelpUnwritten: a help text that cannot be written is an error, like any other output.
func TestHelpUnwritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	testenv.Must(t, err)
	defer full.Close()
	for _, args := range [][]string{{"--help"}, {"help", "run"}, {"export", "--help"}, {"receive", "--status", t.TempDir()}, {"--version"}} {
		var stderr bytes.Buffer
		if status := run(args, full, &stderr); status != exitFailed || !strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("%v: status %d: %s", args, status, &stderr)
		}
	}
}

// TestCaptureInRootsDirectory: root captures in a directory where the user that the capture becomes may do nothing, to a
// file without a directory in its name. What cannot be done afterwards names the user and -Z.
func TestCaptureInRootsDirectory(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	dir := testenv.DiskDir(t)
	testenv.Must(t, os.Chmod(dir, 0o700))
	cmd := commandAsIs(t, &p.B, nil, "capture", "-i", p.B.Ifname, "-Z", "nobody", "-c", "3", "-w", "out.pcapng", "udp")
	cmd.Dir = dir
	sent := testenv.NewSender(t, &p.A)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				return
			default:
				_, _ = sent.Send(testenv.UDP(&p.A, &p.B, 5000, n, 100)) // a full queue has packets enough
			}
		}
	}()
	status, _, stderr := finish(t, cmd)
	close(stop)
	<-done
	if all, err := testenv.ReadCapture(t, filepath.Join(dir, "out.pcapng")); status != 0 || err != nil || len(all) != 3 {
		t.Errorf("status %d, %d packets, %v: %s", status, len(all), err, stderr)
	}
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "s.img"), make([]byte, 4096), 0o644))
	cmd = commandAsIs(t, &p.B, nil, "send", "--rdma", "roce:"+p.B.Ifname, "--pages", "ordinary", "-Z", "nobody", "s.img", "10.0.0.9")
	cmd.Dir = dir
	if status, _, stderr := finish(t, cmd); status != exitFailed || !strings.Contains(stderr, "nobody") || !strings.Contains(stderr, "-Z root") {
		t.Errorf("send: status %d: %s", status, stderr)
	}
}
