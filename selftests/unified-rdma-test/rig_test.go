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

// programVariable makes the test binary run as the program, for tests that run it as a separate process.
const programVariable = "UNIFIEDD_RDMA_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// seat is where the program runs: its card, and the device on it.
type seat struct {
	card, device string
	in           *testenv.Namespace // nil: in this process, if possible
}

// place has the client's seat and the server's.
type place struct {
	seat
	far     seat
	server  string                  // its address
	mtu     int                     // the longest datagram
	patient string                  // options for tests that take long here
	whole   bool                    // run the long tests too
	sizes   []int                   // of the matrix
	matrix  string                  // options of the matrix
	tooLong rdma.Status             // status of a SEND longer than its receive
	sent    func(*testing.T) uint64 // packets that the client's card has sent
}

// text collects the output of a program.
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

// server is a running server.
type server struct {
	t      *testing.T
	out    text
	errs   text
	end    context.CancelFunc
	status chan int
	signal func(os.Signal) // to a separate process
	gone   func()          // waits for its end
}

// serveOn starts a server and waits until it listens. The end of the test calls end if the server
// still runs.
func (p place) serveOn(t *testing.T, args ...string) *server {
	t.Helper()
	s := p.serveHere
	if p.far.in != nil {
		s = p.serveApart
	}
	return s(t, args...)
}

// serveHere runs the server in this process.
func (p place) serveHere(t *testing.T, args ...string) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{t: t, end: cancel, status: make(chan int, 1)}
	go func() { s.status <- run(ctx, args, &s.out, &s.errs) }()
	t.Cleanup(func() { cancel(); _ = s.ended() })
	s.says("waiting for")
	return s
}

// serveApart runs the server in a separate process.
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
	s.end = func() { _ = cmd.Process.Signal(syscall.SIGTERM) } // the process may have ended
	cmd.Stdout, cmd.Stderr = &s.out, &s.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.gone = sync.OnceFunc(func() {
		_ = cmd.Wait() // any status is accepted
		s.status <- cmd.ProcessState.ExitCode()
	})
	t.Cleanup(func() { s.end(); _ = s.ended(); _ = cmd.Process.Kill(); s.gone() })
	s.says("waiting for")
	return s
}

// keeps is serveApart with -keep and without a disk.
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

// ended waits until the server ends and returns its exit status.
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

// asked runs the program as client. It must succeed.
func (p place) asked(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := p.askFor(t, args...)
	if status != 0 || errs != "" {
		t.Errorf("%q: status %d, %s%s", args, status, out, errs)
	}
	return out
}

// process is a command that runs the program in a separate process. It ends when this process ends.
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
