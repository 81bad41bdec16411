package interop

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// side is our program, running in the namespace.
type side struct {
	cmd    *exec.Cmd
	said   *daemon.Log
	status chan error
}

// ours starts unified-rdma-test as server, or as client of where. It is killed after limit.
func (b *bench) ours(t *testing.T, limit time.Duration, options, where string) *side {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	args := append(strings.Fields("-reserve "+options), b.tap.Ifname, "roce:"+b.tap.Ifname, "-", where)
	cmd := b.tap.Command(b.program, args...)
	s := &side{cmd: cmd, said: new(daemon.Log), status: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = s.said, s.said
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	end := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	go func() {
		err := cmd.Wait()
		end()
		s.status <- err
	}()
	t.Cleanup(func() {
		cancel()
		err := <-s.status
		s.status <- err
	})
	return s
}

// says waits until the program has printed a text.
func (s *side) says(t *testing.T, text string) {
	t.Helper()
	testenv.Wait(t, limit, "ours to say "+text, func() bool {
		if len(s.status) > 0 {
			t.Fatalf("ours ended:\n%s", s.said)
		}
		return strings.Contains(s.said.String(), text)
	})
}

// end asks a server with -keep to end.
func (s *side) end(t *testing.T) {
	t.Helper()
	testenv.Check(t, s.cmd.Process.Signal(syscall.SIGTERM))
}

// ended waits until the program ends, which must be with status 0.
func (s *side) ended(t *testing.T) {
	t.Helper()
	err := <-s.status
	s.status <- err
	if err != nil {
		t.Errorf("ours: %v\n%s", err, s.said)
	}
}
