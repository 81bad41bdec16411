//go:build lab

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// programVariable makes the test binary the program itself, for tests that run it as a
// process of its own.
const programVariable = "UNIFIEDD_RDMA_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// place is a device, the card it is made of, and the server's address.
type place struct {
	card, device, server string
	mtu                  int // the longest datagram
}

// text is what a program printed so far.
type text struct {
	mu    sync.Mutex
	bytes []byte
}

func (o *text) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes = append(o.bytes, b...)
	return len(b), nil
}

func (o *text) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.bytes)
}

// newPlace makes a Soft-RoCE device for both sides, of which at the end of the test nothing is
// in use.
func newPlace(t *testing.T) place {
	t.Helper()
	testenv.Leaks(t)
	p := place{card: "virtio0", server: "10.79.0.1", mtu: 1024}
	p.device = labenv.SoftRoCE(t, p.card, p.server+"/24")
	t.Cleanup(func() { atRest(t, p.device) })
	return p
}

// atRest waits until the kernel has no more of a device in use than it has by itself: a queue
// pair for management, with its completion queue and domain.
func atRest(t *testing.T, device string) {
	t.Helper()
	var left []string
	testenv.Wait(t, 10*time.Second, "what the device has in use to be given back", func() bool {
		all, err := netlink.RdmaResourceList()
		if err != nil {
			t.Fatalf("read the kernel's account of RDMA resources: %v", err)
		}
		left = left[:0]
		for _, r := range all {
			for what, most := range map[string]uint64{"qp": 1, "cq": 1, "pd": 1, "mr": 0, "ctx": 0} {
				if n := r.RdmaResourceSummaryEntries[what]; r.Name == device && n > most {
					left = append(left, fmt.Sprintf("%d %s", n, what))
				}
			}
		}
		return len(left) == 0
	})
}

// server is the program as server.
type server struct {
	t      *testing.T
	out    text
	errs   text
	end    context.CancelFunc
	status chan int
	signal func(os.Signal) // to a process of its own
	gone   func()          // waits for its end
}

// serveOn starts a server, and waits until it listens. At the end of the test it is ended
// by end, if it has not been before.
func serveOn(t *testing.T, args ...string) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{t: t, end: cancel, status: make(chan int, 1)}
	go func() { s.status <- run(ctx, args, &s.out, &s.errs) }()
	t.Cleanup(func() { cancel(); _ = s.ended() })
	s.says("waiting for")
	return s
}

// serveApart starts a server that is a process of its own, and serves one client after the other
// until the end of the test.
func serveApart(t *testing.T, p place) *server {
	t.Helper()
	cmd := process(t, p.asServer("-keep -timeout 4s", noDisk)...)
	s := &server{t: t}
	s.signal = func(sig os.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Stdout, cmd.Stderr = &s.out, &s.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.gone = sync.OnceFunc(func() { _ = cmd.Wait() }) // however it ends
	t.Cleanup(func() { _ = cmd.Process.Kill(); s.gone() })
	s.says("waiting for")
	return s
}

// says waits until the server has printed a text.
func (s *server) says(part string) {
	s.t.Helper()
	for end := time.Now().Add(testenv.Within(10 * time.Second)); !strings.Contains(s.out.String(), part); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("the server does not say %q:\n%s%s", part, &s.out, &s.errs)
		}
	}
}

// ended waits for the server's end and returns its exit status.
func (s *server) ended() int {
	select {
	case n := <-s.status:
		s.status <- n
		return n
	case <-time.After(testenv.Within(10 * time.Second)):
		s.t.Errorf("the server does not end:\n%s%s", &s.out, &s.errs)
		return -1
	}
}

// askFor runs the program as client.
func askFor(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs text
	status = run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// patient is for a busy machine, where an emulated one does nothing for a while: an
// acknowledgement may take a second.
const patient = "-qp-timeout 18 "

// asServer and asClient are command lines.
func (p place) asServer(options, disk string) []string {
	return append(strings.Fields(patient+options), p.card, p.device, disk, "server")
}

func (p place) asClient(options string) []string {
	return append(strings.Fields(patient+options), p.card, p.device, noDisk, p.server)
}

// asked runs the program as client, which must work.
func asked(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := askFor(t, args...)
	if status != 0 || errs != "" {
		t.Errorf("%q: status %d, %s%s", args, status, out, errs)
	}
	return out
}

// process is the program as a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), programVariable+"=1")
	return cmd
}
