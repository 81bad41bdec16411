package tune

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/card"
)

// Guard is a process that undoes what was changed of a card if this process ends without having done that, because it
// was killed, or because a goroutine panicked.
type Guard struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// What the processes say to each other, a line each. Before it the guard is sent the settings, as JSON.
const (
	guardReady = "ready\n"
	guardEnd   = "end\n" // nothing is left to undo
)

// StartGuard starts this program again with these arguments, which must call [StandGuard]. The caller calls
// [Guard.End] in the end.
func StartGuard(o *Outside, args ...string) (*Guard, error) {
	g := &Guard{cmd: &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{os.Args[0]}, args...), Stderr: os.Stderr}}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal interrupts only this process
	stdin, err := g.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that undoes changes: %w", err)
	}
	g.stdin = stdin
	err = json.NewEncoder(stdin).Encode(o.Before)
	if said, _ := bufio.NewReader(stdout).ReadString('\n'); err == nil && said != guardReady {
		err = fmt.Errorf("it said %q", said)
	}
	if err != nil {
		return nil, fmt.Errorf("start the process that undoes changes: %w", errors.Join(err, g.End(false)))
	}
	return g, nil
}

// End ends the guard. It undoes all changes first, unless they are done with.
func (g *Guard) End(done bool) (err error) {
	if done {
		_, err = io.WriteString(g.stdin, guardEnd)
	}
	err = errors.Join(err, g.stdin.Close())
	if e := g.cmd.Wait(); e != nil {
		err = errors.Join(err, fmt.Errorf("the process that undoes changes: %w", e))
	}
	return err
}

// Times of a guard that undoes. A process that was killed may still have the interface for a moment.
const (
	undoFor  = 10 * time.Second
	undoPoll = 100 * time.Millisecond
)

// StandGuard is the guard of a card: it waits for the end of the other process, and undoes what is left to undo.
func StandGuard(name string, stdin io.Reader, stdout, stderr io.Writer) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	c, err := card.Find(name)
	if err != nil {
		return err
	}
	from, before := bufio.NewReader(stdin), card.Settings{}
	line, err := from.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &before)
	}
	if err != nil {
		return fmt.Errorf("read the settings of %s: %w", name, err)
	}
	if _, err := io.WriteString(stdout, guardReady); err != nil {
		return err
	}
	if rest, _ := io.ReadAll(from); strings.HasPrefix(string(rest), guardEnd) {
		return nil
	}
	changed, err := undo(c, before)
	if changed && err == nil {
		fmt.Fprintf(stderr, "unifiedd: %s has its settings from before again\n", name)
	}
	return err
}

// undo sets what was before, for as long as that fails and may still succeed.
func undo(c *card.Card, before card.Settings) (changed bool, err error) {
	for begun := time.Now(); ; time.Sleep(undoPoll) {
		did, err := c.Set(before)
		changed = changed || did
		if err == nil || time.Since(begun) > undoFor {
			return changed, err
		}
	}
}
