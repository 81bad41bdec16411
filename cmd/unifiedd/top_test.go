package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// terminal is a pseudo terminal, and what was written to it.
type terminal struct {
	main *os.File
	mu   sync.Mutex
	text strings.Builder
}

// newTerminal returns a terminal of 120 by 30, and its other end.
func newTerminal(t *testing.T) (*terminal, *os.File) {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	testenv.Must(t, err)
	t.Cleanup(func() { main.Close() })
	testenv.Must(t, unix.IoctlSetPointerInt(int(main.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(main.Fd()), unix.TIOCGPTN)
	testenv.Must(t, err)
	testenv.Must(t, unix.IoctlSetWinsize(int(main.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 120}))
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	testenv.Must(t, err)
	t.Cleanup(func() { other.Close() })
	term := &terminal{main: main}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := main.Read(b)
			if err != nil {
				return
			}
			term.mu.Lock()
			term.text.Write(b[:n])
			term.mu.Unlock()
		}
	}()
	return term, other
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?<>=$]*[a-zA-Z@]|\x1b[^\[]`)

// said returns what was written, without escape sequences.
func (term *terminal) said() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return escapes.ReplaceAllString(term.text.String(), " ")
}

func (term *terminal) raw() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text.String()
}

func (term *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := term.main.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// TestTop: in a terminal it shows the flows of a daemon that runs, and one in detail, says when the daemon has ended, and
// leaves the terminal as it was.
func TestTop(t *testing.T) {
	testenv.Root(t)
	d := startTraced(t, "")
	term, end := newTerminal(t)
	cmd := exec.Command(testenv.Tool(t, "unifiedd"), "top", "--socket", d.socket)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testenv.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	wait := func(want string) {
		t.Helper()
		for limit := time.Now().Add(20 * time.Second); !strings.Contains(term.said(), want); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("the terminal does not show %q:\n%q", want, term.raw())
			}
		}
	}
	wait("2 of 2 flows run")
	wait("nowhere")
	wait("discarded")
	term.press(t, "n")
	wait("name")
	term.press(t, "\r")
	wait("copies per byte")
	before := strings.Count(term.said(), "the daemon")
	testenv.Must(t, d.Process.Signal(syscall.SIGTERM))
	testenv.Wait(t, 20*time.Second, "that the daemon has ended, or cannot be asked", func() bool { return strings.Count(term.said(), "the daemon") > before })
	term.press(t, "q")
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("top: %v\n%q", err, term.raw())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("top does not end")
	}
	for _, want := range []string{"\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"} { // the other screen, this one, and the cursor
		testenv.Wait(t, 5*time.Second, fmt.Sprintf("%q", want), func() bool { return strings.Contains(term.raw(), want) })
	}
}

// TestTopNeedsTerminal: without a terminal it says what to use instead.
func TestTopNeedsTerminal(t *testing.T) {
	testenv.Root(t)
	d := startTraced(t, "")
	out, err := exec.Command(testenv.Tool(t, "unifiedd"), "top", "--socket", d.socket).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unifiedd status") {
		t.Errorf("%v: %s", err, out)
	}
}
