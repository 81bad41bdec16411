package documents

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// shell is one on a machine, with a directory of its own, /etc, /var/lib, /run and /srv.
type shell struct {
	in    io.Writer
	mu    sync.Mutex
	out   bytes.Buffer
	count int
}

// Write keeps what the shell's programs print.
func (s *shell) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

func (s *shell) since(at int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()[at:]
}

// mounts is what a shell begins with. What it loads into the kernel would be there for all: it is only looked up.
const mounts = `set -em
mount --bind lib /var/lib; mount -t tmpfs run /run; mount --bind srv /srv
mount -t overlay overlay -o lowerdir=/etc,upperdir=etc,workdir=work /etc
modprobe() { command modprobe --dry-run "$@"; }
cd home; CHECKOUT=%s; PATH=%s:$CHECKOUT/build/unpacked/usr/bin:$PATH; set +e`

// newShell starts a shell. Its directory has the configurations of the page: under the name that a tutorial says, and as 1.yaml,
// 2.yaml and so on.
func newShell(t *testing.T, e *testenv.End, dir, text string) *shell {
	t.Helper()
	for _, d := range []string{"", "lib/unifiedd", "srv", "etc/unifiedd", "work", "home"} {
		testenv.Must(t, os.MkdirAll(filepath.Join(dir, d), 0o755), os.Chmod(filepath.Join(dir, d), 0o777))
	}
	for i, m := range fence.FindAllStringSubmatch(text, -1) {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, "home", fmt.Sprintf("%d.yaml", i+1)), []byte(m[1]), 0o644))
	}
	if m := saved.FindStringSubmatch(text); m != nil {
		testenv.Must(t, os.Rename(filepath.Join(dir, "home/1.yaml"), filepath.Join(dir, "home", m[1])))
	}
	cmd := e.Command("unshare", "--mount", "--propagation", "private", "bash")
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SUDO_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	s := new(shell)
	in, err := cmd.StdinPipe()
	testenv.Must(t, err)
	s.in, cmd.Stdout, cmd.Stderr = in, s, s
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() { endShell(t, s, cmd, in) })
	checkout, err := filepath.Abs(root)
	testenv.Must(t, err)
	s.say(t, fmt.Sprintf(mounts, checkout, path+filepath.Dir(program)+":"+filepath.Dir(flowTest)))
	return s
}

// endShell ends the programs that the shell has started, and the shell.
func endShell(t *testing.T, s *shell, cmd *exec.Cmd, in io.Closer) {
	s.say(t, "for job in $(jobs -p); do kill -TERM -- -$job; done; wait; exit")
	_ = in.Close() // the shell has ended
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // with the status of the last program
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(testenv.Within(30 * time.Second)):
		_ = cmd.Process.Kill() // it may have ended now
		t.Errorf("the shell does not end: %s", s.since(0))
	}
}

func (s *shell) say(t *testing.T, line string) {
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		t.Errorf("%s: %v", line, err)
	}
}

// run runs a command, and waits until it has printed what the page shows, and has ended unless it is to go on. lacks matches
// what it says on a machine that lacks a device for it; empty: it must not fail.
func (s *shell) run(t *testing.T, what step, lacks string) {
	t.Helper()
	s.count++
	mark := fmt.Sprintf("ended-%d:", s.count)
	at := len(s.since(0))
	s.say(t, strings.ReplaceAll(what.command, "go run ./docs/examples/append", example)+"\necho "+mark+"$?")
	defer func() {
		if t.Failed() {
			t.Logf("%s$ %s\n%s", what.machine, what.command, s.since(at))
		}
	}()
	testenv.Wait(t, 10*time.Minute, what.command, func() bool {
		got := s.since(at)
		return strings.Contains(got, mark) && (missing(got, what.output) == "" || !strings.HasSuffix(what.command, "&"))
	})
	got := s.since(at)
	if lacks != "" && regexp.MustCompile(lacks).MatchString(got) {
		return
	}
	if line := missing(got, what.output); line != "" {
		t.Fatalf("it does not print %q", line)
	}
	if !strings.Contains(got, mark+"0\n") {
		t.Fatal("it fails")
	}
}
