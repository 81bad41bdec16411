// Package etcdserver runs Debian's etcd for tests.
package etcdserver

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Place is where a process runs, such as a testenv.Namespace.
type Place interface {
	Command(name string, args ...string) *exec.Cmd
}

// Options say how etcd runs. The zero value is without TLS, at the loopback address of this process, with free ports.
type Options struct {
	At   Place  // nil: where the test is
	Host string // IP address that clients use; empty: 127.0.0.1
	Port int    // of clients; the next one is etcd's own. 0: free ones, where the test is
	// Certificate, Key and Authority are PEM files. With them clients use https, and need a certificate.
	Certificate, Key, Authority string
}

// Server is one etcd. Its methods belong to the test.
type Server struct {
	URL  string // for clients
	Dir  string // of its data
	o    Options
	peer string
	cmd  *exec.Cmd
	log  *log
	over chan struct{} // closed when the process has ended
}

// log collects what etcd prints.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Start starts etcd with empty data. It ends with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	own := o.Port + 1
	if o.Port == 0 {
		o.Port, own = freePort(t), freePort(t)
	}
	scheme := "http"
	if o.Certificate != "" {
		scheme = "https"
	}
	s := &Server{URL: fmt.Sprintf("%s://%s", scheme, net.JoinHostPort(o.Host, fmt.Sprint(o.Port))), Dir: t.TempDir(), o: o, peer: fmt.Sprintf("http://127.0.0.1:%d", own)}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("etcd's log:\n%s", s.log)
		}
	})
	s.Again(t)
	return s
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Again starts etcd again after Kill, with the data that it had, and waits until it serves clients.
func (s *Server) Again(t testing.TB) {
	t.Helper()
	args := []string{"--name", "one", "--data-dir", filepath.Join(s.Dir, "data"), "--listen-client-urls", s.URL, "--advertise-client-urls", s.URL,
		"--listen-peer-urls", s.peer, "--initial-advertise-peer-urls", s.peer, "--initial-cluster", "one=" + s.peer}
	if s.o.Certificate != "" {
		args = append(args, "--cert-file", s.o.Certificate, "--key-file", s.o.Key, "--trusted-ca-file", s.o.Authority, "--client-cert-auth")
	}
	if s.o.At == nil {
		s.cmd = exec.Command(Program(t), args...)
	} else {
		s.cmd = s.o.At.Command(Program(t), args...)
	}
	s.log, s.over = new(log), make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if runtime.GOARCH != "amd64" {
		s.cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
	}
	testenv.Must(t, s.cmd.Start())
	cmd, over := s.cmd, s.over
	go func() { _ = cmd.Wait(); close(over) }()
	testenv.Wait(t, 60*time.Second, "etcd to serve clients", func() bool {
		select {
		case <-over:
			t.Fatalf("etcd has ended:\n%s", s.log)
		default:
		}
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		return bytes.Contains(s.log.text.Bytes(), []byte("client requests"))
	})
}

// Kill ends etcd as a crash does. It may be called again.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	select {
	case <-s.over:
	default:
		_ = s.cmd.Process.Kill() // it may end by itself
		<-s.over
	}
}

// Stop halts etcd as SIGSTOP does: its connections stay, and it does not answer. Continue lets it go on.
func (s *Server) Stop() { _ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGSTOP) }

// Continue ends Stop.
func (s *Server) Continue() { _ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGCONT) }

// Forget removes the data of an etcd that was killed.
func (s *Server) Forget(t testing.TB) {
	t.Helper()
	testenv.Must(t, os.RemoveAll(filepath.Join(s.Dir, "data")))
}

// PID is the number of the process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Program returns the path of etcd, which scripts/setup.sh demo test unpacks.
func Program(t testing.TB) string {
	t.Helper()
	root := ""
	dir, err := os.Getwd() // that of the test's package
	for ; err == nil && dir != "/" && root == ""; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			root = dir
		}
	}
	path := filepath.Join(root, "build", "unpacked", "usr", "bin", "etcd")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if path, err = exec.LookPath("etcd"); err != nil {
		t.Fatalf("look for etcd: %v (unpack the test programs: scripts/setup.sh demo test)", err)
	}
	return path
}
