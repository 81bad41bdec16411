package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// lines is what a program says. Any goroutine may use it.
type lines struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.said.String(), text)
}

// TestLeaves: tcpdump on another host sees the daemon's host join a group when a flow starts, and leave it when the
// daemon is stopped, and when it is killed.
func TestLeaves(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "tcpdump")
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(end.String(), func(t *testing.T) { leaves(t, end) })
	}
}

func leaves(t *testing.T, end syscall.Signal) {
	p, dir := testenv.NewPair(t, testenv.PairOptions{}), testenv.DiskDir(t)
	seen, said := &lines{}, &lines{}
	dump := p.A.Command("tcpdump", "-l", "-n", "-vv", "-i", p.A.Ifname, "igmp")
	dump.Stdout, dump.Stderr = seen, seen
	launch(t, dump)
	wait := func(what string, l *lines) {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); !l.has(what); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%q does not come:\n%s\n%s", what, &seen.said, &said.said)
			}
		}
	}
	wait("listening on", seen)
	file := filepath.Join(dir, "unifiedd.yaml")
	text := fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
control: {socket: %[1]s/control.sock}
flows:
  - name: feed
    from: {interface: %[2]s, join: [239.1.2.3, {group: 232.1.2.3, source: 10.9.9.9}]}
    to: {discard: true}
`, dir, p.B.Ifname)
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
	d := p.B.Command(testenv.Tool(t, "unifiedd"), "run", "-c", file)
	d.Stdout, d.Stderr = said, said
	launch(t, d)
	wait("239.1.2.3 to_ex", seen)
	wait("232.1.2.3 allow { 10.9.9.9 }", seen)
	if err := d.Process.Signal(end); err != nil { // nsenter has become the daemon
		t.Fatal(err)
	}
	wait("239.1.2.3 to_in", seen)
	wait("232.1.2.3 block { 10.9.9.9 }", seen)
	_ = d.Wait() // its status says how it ended
}

// TestCaptureJoins: behind a switch with snooping, a capture gets the packets of a group that it joins, also of one source
// only, and without --join it gets none.
func TestCaptureJoins(t *testing.T) {
	testenv.Root(t)
	ends := testenv.NewSwitch(t, 2, testenv.PairOptions{})
	sender, here := ends[0], ends[1]
	here.Query(t)
	var fd int
	sender.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(sender.Index)})
		}
		testenv.Must(t, err)
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for _, group := range [][4]byte{{239, 1, 2, 3}, {232, 1, 2, 3}} {
				_ = unix.Sendto(fd, make([]byte, 100), 0, &unix.SockaddrInet4{Port: 7000, Addr: group})
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped; _ = unix.Close(fd) })
	for _, c := range []struct {
		args   []string
		some   bool
		filter string
	}{
		{nil, false, "udp port 7000"}, // these two first: the switch forgets members only after a while
		{[]string{"--join", "232.1.2.3,10.9.9.9"}, false, "dst 232.1.2.3"},
		{[]string{"--join", "239.1.2.3"}, true, "dst 239.1.2.3"},
		{[]string{"--join", "239.9.9.9", "--join", "232.1.2.3," + sender.IP.String()}, true, "dst 232.1.2.3"},
	} {
		args := append([]string{"capture", "-i", here.Ifname, "--take", "--ring", "512", "-c", "20"}, append(c.args, c.filter)...)
		cmd, said := command(t, here, args...), &lines{}
		cmd.Stderr = said
		launch(t, cmd)
		if !c.some { // it would wait for ever
			testenv.Wait(t, testenv.Within(30*time.Second), "the capture", func() bool { return said.has("capturing on") })
			time.Sleep(2 * time.Second)
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil { // nsenter has become timeout, which passes it on
				t.Error(err)
			}
		}
		if err := cmd.Wait(); err != nil || said.has("20 packets captured") != c.some {
			t.Errorf("%q: %v: %s", args, err, &said.said)
		}
	}
	for _, wrong := range []string{"239.1.2.3,", "10.0.0.1", "239.1.2.3,fd00::1", "feed"} {
		if status, _, said := finish(t, command(t, here, "capture", "-i", here.Ifname, "--join", wrong)); status != 2 || !strings.Contains(said, "--join") {
			t.Errorf("--join %s: status %d: %s", wrong, status, said)
		}
	}
}

// launch starts a program that is ended at the end of the test, if it still runs.
func launch(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.WaitDelay = 10 * time.Second
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(syscall.SIGTERM) // timeout passes it on
			late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			late.Stop()
		}
	})
}
