package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
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

// seat is where the program runs: with a device, on the card that it is of.
type seat struct {
	card, device string
	in           *testenv.Namespace // nil: here, in this process where it can be
}

// place is the client's seat, and the server's.
type place struct {
	seat
	far     seat
	server  string                  // its address
	mtu     int                     // the longest datagram
	patient string                  // options for what takes long here
	whole   bool                    // not only what is short
	sizes   []int                   // of the matrix
	matrix  string                  // options for it
	tooLong rdma.Status             // of a SEND longer than its receive
	sent    func(*testing.T) uint64 // packets, by the client's card
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
func (p place) serveOn(t *testing.T, args ...string) *server {
	t.Helper()
	s := p.serveHere
	if p.far.in != nil {
		s = p.serveApart
	}
	return s(t, args...)
}

// serveHere has the server in this process.
func (p place) serveHere(t *testing.T, args ...string) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{t: t, end: cancel, status: make(chan int, 1)}
	go func() { s.status <- run(ctx, args, &s.out, &s.errs) }()
	t.Cleanup(func() { cancel(); _ = s.ended() })
	s.says("waiting for")
	return s
}

// serveApart starts a server that is a process of its own.
func (p place) serveApart(t *testing.T, args ...string) *server {
	t.Helper()
	cmd := p.far.process(t, args...)
	s := &server{t: t, status: make(chan int, 1)}
	s.signal = func(sig os.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	s.end = func() { _ = cmd.Process.Signal(syscall.SIGTERM) } // it may have ended
	cmd.Stdout, cmd.Stderr = &s.out, &s.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.gone = sync.OnceFunc(func() {
		_ = cmd.Wait() // however it ends
		s.status <- cmd.ProcessState.ExitCode()
	})
	t.Cleanup(func() { s.end(); _ = s.ended(); _ = cmd.Process.Kill(); s.gone() })
	s.says("waiting for")
	return s
}

// keeps is serveApart of a server without a disk that serves one client after the other.
func (p place) keeps(t *testing.T) *server {
	t.Helper()
	return p.serveApart(t, p.asServer("-keep -timeout 4s", noDisk)...)
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
	s.t.Helper()
	if s.gone != nil {
		go s.gone()
	}
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
func (p place) askFor(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs text
	if p.in == nil {
		status = run(t.Context(), args, &out, &errs)
		return status, out.String(), errs.String()
	}
	cmd := p.process(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Errorf("start the program: %v", err)
		return -1, "", err.Error()
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// asServer and asClient are command lines.
func (p place) asServer(options, disk string) []string {
	return append(strings.Fields(p.patient+options), p.far.card, p.far.device, disk, "server")
}

func (p place) asClient(options string) []string {
	return append(strings.Fields(p.patient+options), p.card, p.device, noDisk, p.server)
}

// asked runs the program as client, which must work.
func (p place) asked(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := p.askFor(t, args...)
	if status != 0 || errs != "" {
		t.Errorf("%q: status %d, %s%s", args, status, out, errs)
	}
	return out
}

// process is the program as a process of its own, which does not outlive this one.
func (s seat) process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	if s.in != nil {
		cmd = s.in.Command(exe, args...)
	}
	cmd.Env = append(os.Environ(), programVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
