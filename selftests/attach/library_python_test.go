package attach

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// script is a running example in Python.
type script struct {
	t   *testing.T
	in  io.WriteCloser
	out chan string
}

// runScript runs an example in Python with the library in a directory, and kills it in the end.
func runScript(t *testing.T, built, name string, args ...string) *script {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testenv.Tool(t, "python3"), append([]string{"-B", libunifiedd + "examples/" + name}, args...)...)
	cmd.Env = append(os.Environ(), "UNIFIEDD_LIBRARY="+filepath.Join(built, "libunifiedd.so.1"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	testenv.Must(t, err)
	out, err := cmd.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, cmd.Start())
	s := &script{t, in, make(chan string, 100)}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.out <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it is killed
	})
	return s
}

// expect waits for a line.
func (s *script) expect(want string) {
	s.t.Helper()
	select {
	case got := <-s.out:
		if got != want {
			s.t.Fatalf("%q instead of %q", got, want)
		}
	case <-time.After(testenv.Within(20 * time.Second)):
		s.t.Fatalf("no line %q", want)
	}
}

// TestLibraryPython: the examples in Python write and read a channel, and read an object and a key, over a restart of the daemon.
func TestLibraryPython(t *testing.T) {
	testenv.Long(t, "TestLibrary has the library that Python calls")
	dir, built := t.TempDir(), t.TempDir()
	buildLibrary(t, built)
	socket := filepath.Join(dir, "attach.sock")
	text := strings.NewReplacer("SOCKET", socket, "USER", strconv.Itoa(os.Getuid())).Replace(`
region: {size: 32MiB, pages: ordinary}
attach:
  socket: SOCKET
  programs: [{name: updater, user: "USER", out: 1MiB}, {name: writer, user: "USER"}, {name: reader, user: "USER"}, {name: objects, user: "USER"},
    {name: keys, user: "USER"}, {name: counter, user: "USER", in: 1MiB}]
  channels: [{name: news, writer: writer, slots: 16, slot: 128, readers: [{program: reader, policy: wait}]}]
  states: [{name: book, objects: 4, room: 64, readers: [objects]}, {name: refs, keys: 100, readers: [keys]}]
flows:
  - {name: books, from: {attach: updater, message: 256}, to: {state: book}}
  - {name: keys, from: {attach: updater, message: 256}, to: {state: refs}}
  - {name: md, from: {generate: 100, rate: 1000}, to: {attach: counter}}
`)
	d := daemon.Launch(t, program, daemon.Here{}, dir, text)
	d.Running(t)
	writer := runScript(t, built, "channel_reader.py", "--write", "writer", "news", socket)
	reader := runScript(t, built, "channel_reader.py", "reader", "news", socket)
	objects := runScript(t, built, "state_reader.py", "objects", "book", "2", socket)
	keys := runScript(t, built, "state_reader.py", "keys", "refs", "isin", socket)
	counter := runScript(t, built, "packet_counter.py", "counter", "md", socket)
	for run, first := range []int{1, 31} {
		if run > 0 {
			d.Kill()
			d = daemon.Launch(t, program, daemon.Here{}, dir, text)
			d.Running(t)
		}
		d.Until(t, "the programs to be there", func(s *status.Daemon) bool {
			c := s.Programs.Channels[0]
			return c.Writing && c.Readers[0].Reading && s.States[0].Readers[0].Reading && s.States[1].Readers[0].Reading && s.Flows[2].Gives.Open
		})
		if run > 0 {
			keys.expect("0 ") // it begins empty
		}
		for n := first; n < first+30; n++ {
			_, _ = fmt.Fprintf(writer.in, "message %d\n", n) // no line shows that it has ended
			writer.expect(strconv.Itoa(n))
			reader.expect(fmt.Sprintf("%d 0 message %d", n, n))
		}
		updater := &goLibrary{Context: t.Context()}
		step := func(say, want string) {
			t.Helper()
			if got := updater.do(say); got != want {
				t.Fatalf("%s: %q instead of %q", say, got, want)
			}
		}
		step("attach "+socket+" updater 7", "attached")
		step("send books 0", "opened 1")
		step("putobject 2 5", "updated 1")
		objects.expect("1 " + strings.Repeat("\a", 5))
		step("deleteobject 2", "updated 2")
		objects.expect("2 ")
		step("close", "closed")
		step("send keys 0", "opened 1")
		step("putkey isin "+strconv.Itoa(first), "updated 1")
		keys.expect("1 " + strconv.Itoa(first))
		if err := updater.end(); err != nil {
			t.Error(err)
		}
		if run == 0 {
			checkCounter(t, counter)
		}
	}
}

// checkCounter checks the first line of packet_counter.py.
func checkCounter(t *testing.T, counter *script) {
	t.Helper()
	select {
	case line := <-counter.out:
		var packets, size, lost int
		if n, err := fmt.Sscanf(line, "%d packets, %d bytes, %d lost", &packets, &size, &lost); n != 3 || packets == 0 || size != 100*packets || lost != 0 {
			t.Errorf("the counter says %q: %v", line, err)
		}
	case <-time.After(testenv.Within(10 * time.Second)):
		t.Error("the counter says nothing")
	}
}
