package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// seat is where the program runs: its card, and the device on it.
type seat struct {
	card, device string
	in           *testenv.Namespace // nil: the test's
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

// run starts the program.
func (s seat) run(t *testing.T, args ...string) *programtest.Run {
	t.Helper()
	if s.in != nil {
		return programtest.Launch(t, s.in, os.Args[0], args...)
	}
	return programtest.Launch(t, daemon.Here{}, os.Args[0], args...)
}

// server is a running server.
type server struct {
	*programtest.Run
	t *testing.T
}

// serveOn starts a server and waits until it listens.
func (p place) serveOn(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{p.far.run(t, args...), t}
	s.Says("waiting for")
	return s
}

// keeps starts a server with -keep and without a disk.
func (p place) keeps(t *testing.T) *server {
	t.Helper()
	return p.serveOn(t, p.asServer("-keep -timeout 4s", noDisk)...)
}

// ended tells the server to end, and returns its exit status.
func (s *server) ended() int {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	return s.End()
}

// askFor runs the program as client.
func (p place) askFor(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	r := p.run(t, args...)
	status = r.End()
	return status, r.Out.String(), r.Errs.String()
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
