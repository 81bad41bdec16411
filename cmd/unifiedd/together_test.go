package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestTogether: captures and daemons that reserve huge pages at the same moment all run, alone and
// beside a program that takes and gives back huge pages.
func TestTogether(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	together(t, p, false)
	if !testing.Short() {
		together(t, p, true)
	}
}

// starting is a program that is about to capture.
type starting struct {
	*exec.Cmd
	said, ready string // a file with its errors, and one that exists once it runs
	errs        *os.File
}

func together(t *testing.T, p *testenv.Pair, beside bool) {
	t.Helper()
	if beside {
		defer testenv.Stir(t, testenv.Tool(t, "stir"), "STIR=1")()
	}
	var all []*starting
	p.B.Do(t, func() {
		for n := range 6 {
			all = append(all, startToReserve(t, n))
		}
	})
	for n, s := range all {
		testenv.Wait(t, time.Minute, "a capture to run: "+s.text(), func() bool { return s.runs() || s.ProcessState != nil })
		testenv.Check(t, s.Process.Signal(syscall.SIGINT))
		if err := s.Wait(); err != nil {
			t.Errorf("number %d, beside another %v: %v: %s", n, beside, err, s.text())
		}
		s.errs.Close()
	}
}

// startToReserve starts a capture or a daemon on its own interface.
func startToReserve(t *testing.T, n int) *starting {
	t.Helper()
	dir := t.TempDir()
	iface := fmt.Sprintf("one%d", n)
	_ = exec.Command("ip", "link", "del", iface).Run()
	for _, args := range [][]string{{"link", "add", iface, "type", "veth", "peer", "name", iface + "p"}, {"link", "set", iface, "up"}, {"link", "set", iface + "p", "up"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
	s := &starting{said: filepath.Join(dir, "said"), ready: filepath.Join(dir, "control.sock")}
	if n%2 == 0 {
		s.Cmd = exec.Command(testenv.Tool(t, "unifiedd"), "capture", "-i", iface, "--take", "--ring", "512")
		s.ready = ""
	} else {
		text := fmt.Sprintf("control: {socket: %s}\nregion: {size: 64MiB, extents: 4, reserve: true}\nflows:\n  - name: one\n    from: {interface: %s, ring: 512}\n    to: {discard: true}\n", s.ready, iface)
		file := filepath.Join(dir, "one.yaml")
		testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
		s.Cmd = exec.Command(testenv.Tool(t, "unifiedd"), "run", "-c", file)
	}
	var err error
	if s.errs, err = os.Create(s.said); err != nil {
		t.Fatal(err)
	}
	s.Stdout, s.Stderr = s.errs, s.errs
	testenv.Must(t, s.Start())
	t.Cleanup(func() { _ = s.Process.Kill() })
	return s
}

func (s *starting) text() string { text, _ := os.ReadFile(s.said); return string(text) }

// runs reports whether the program captures, or has ended.
func (s *starting) runs() bool {
	if s.ready == "" {
		return bytes.Contains([]byte(s.text()), []byte("capturing on")) || bytes.Contains([]byte(s.text()), []byte("unifiedd:"))
	}
	out, err := exec.Command("unifiedd", "status", "-o", "wide", "--socket", s.ready).CombinedOutput()
	return err == nil && bytes.Contains(out, []byte("running")) || bytes.Contains([]byte(s.text()), []byte("unifiedd:"))
}
