package documents

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestTutorials: the commands of each tutorial run as they stand there, on machines whose eth1 has 10.0.0.1, 10.0.0.2 and
// so on. Each prints the lines that the tutorial shows, in their order; times and rates may differ.
func TestTutorials(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 448<<20)
	names, err := filepath.Glob(root + "/docs/tutorials/*.md")
	testenv.Must(t, err)
	if len(names) < 6 {
		t.Fatalf("found %d tutorials", len(names))
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".md"), func(t *testing.T) { follow(t, read(t, name)) })
	}
}

// machineOf are the machines of prompts, in the order of their addresses.
var machineOf = map[string]int{"here": 0, "there": 1, "a": 0, "b": 1, "c": 2, "client": 3}

// console matches a block of commands with what they print, and prompt a command in it.
var (
	console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	prompt  = regexp.MustCompile(`^([a-z]+)\$ (.*)$`)
	saved   = regexp.MustCompile("Write `([a-z]+\\.yaml)`")
)

// follow runs the commands of a tutorial.
func follow(t *testing.T, text string) {
	var steps []step
	for _, block := range console.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSuffix(line, "\n")
			if m := prompt.FindStringSubmatch(line); m != nil {
				steps = append(steps, step{machine: m[1], command: m[2]})
			} else if n := len(steps); n > 0 {
				steps[n-1].output = append(steps[n-1].output, line)
			}
		}
	}
	if len(steps) == 0 {
		t.Fatal("the tutorial has no commands")
	}
	dir := reachable(t)
	shells := make(map[string]*shell)
	ends := testenv.NewSwitch(t, 4, testenv.PairOptions{MTU: 4200})
	for i, e := range ends {
		rename(t, e, "eth1", fmt.Sprintf("10.0.0.%d/24", i+1))
	}
	for _, s := range steps {
		sh := shells[s.machine]
		if sh == nil {
			i, known := machineOf[s.machine]
			if !known {
				t.Fatalf("no machine is called %s", s.machine)
			}
			sh = newShell(t, ends[i], dir, s.machine, text)
			shells[s.machine] = sh
		}
		sh.run(t, s)
	}
}

// reachable makes a directory that every user can reach.
func reachable(t *testing.T) string {
	t.Helper()
	dir := testenv.DiskDir(t)
	for path := dir; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) {
		testenv.Must(t, os.Chmod(path, 0o755))
	}
	return dir
}

// step is a command of a tutorial, and what it prints there.
type step struct {
	machine, command string
	output           []string
}

// shell is one on a machine, with a directory of its own, /var/lib and /run.
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

// newShell starts a shell. Its directory has the configuration that the tutorial has the reader write.
func newShell(t *testing.T, e *testenv.End, dir, name, text string) *shell {
	t.Helper()
	home := filepath.Join(dir, name)
	for _, d := range []string{home, filepath.Join(home, "lib/unifiedd"), filepath.Join(home, "run/unifiedd"), filepath.Join(home, "home")} {
		testenv.Must(t, os.MkdirAll(d, 0o755), os.Chmod(d, 0o777))
	}
	if m := saved.FindStringSubmatch(text); m != nil {
		testenv.Must(t, os.WriteFile(filepath.Join(home, "home", m[1]), []byte(fence.FindStringSubmatch(text)[1]), 0o644))
	}
	cmd := e.Command("unshare", "--mount", "--propagation", "private", "bash")
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
	s.say(t, fmt.Sprintf("set -em; mount --bind %[1]s/lib /var/lib; mount --bind %[1]s/run /run; cd %[1]s/home; PATH=%[2]s:%[3]s:$PATH; set +e", home, filepath.Dir(program), filepath.Dir(flowTest)))
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

// run runs a command, and waits until it has printed what the tutorial shows, and has ended unless it is to go on.
func (s *shell) run(t *testing.T, what step) {
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
	testenv.Wait(t, 60*time.Second, what.command, func() bool {
		got := s.since(at)
		return strings.Contains(got, mark) && (missing(got, what.output) == "" || !strings.HasSuffix(what.command, "&"))
	})
	got := s.since(at)
	if line := missing(got, what.output); line != "" {
		t.Fatalf("it does not print %q", line)
	}
	if !strings.Contains(got, mark+"0\n") {
		t.Fatal("it fails")
	}
}

// differs matches what is another one each time: times, rates, numbers of processes, hashes.
var differs = regexp.MustCompile(`[0-9a-f]{64}|\d+-\d+-\d+T[0-9:.]+Z|\d+:\d+:\d+\.\d+|\d+\.\d+ |\bid \d+|time \d+ms|\d+ messages/s|position \d+ of the log`)

// missing returns the first line that is not in a text behind those before it.
func missing(text string, lines []string) string {
	got := strings.Split(text, "\n")
	for _, line := range lines {
		var want strings.Builder
		rest := 0
		for _, m := range differs.FindAllStringIndex(line, -1) {
			want.WriteString(regexp.QuoteMeta(line[rest:m[0]]) + ".+")
			rest = m[1]
		}
		want.WriteString(regexp.QuoteMeta(line[rest:]))
		i := slices.IndexFunc(got, regexp.MustCompile(want.String()).MatchString)
		if i < 0 {
			return line
		}
		got = got[i+1:]
	}
	return ""
}
