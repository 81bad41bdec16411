// Package wronguse runs programs with wrong input and checks their reaction. They must end by themselves
// with status 1 or 2, not panic, name the program and the mistake in one line, and change nothing.
package wronguse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Case is one wrong use of a program.
type Case struct {
	Name   string   // the mistake
	Args   []string // the command line
	Status int      // the exit status; 0: either 1 or 2
	Says   []string // texts that standard error must contain
	Dir    string   // a directory where nothing may change; empty: none
}

// limit is how long a program may take to report the mistake.
const limit = 60 * time.Second

// tableEnv is the environment variable with the file that rows of the table are added to.
const tableEnv = "WRONG_USE_TABLE"

var table sync.Mutex

// Run runs the program once for each case.
func Run(t *testing.T, program string, cases []Case) {
	t.Helper()
	RunBy(t, filepath.Base(program), cases, func(t *testing.T, args []string, errs io.Writer) (status int) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stderr = errs
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		if ctx.Err() != nil {
			t.Errorf("it did not end within %v", limit)
		}
		return cmd.ProcessState.ExitCode()
	})
}

// RunBy is Run for a program that use runs, with standard error, and whose exit status use returns.
func RunBy(t *testing.T, name string, cases []Case, use func(t *testing.T, args []string, errs io.Writer) (status int)) {
	t.Helper()
	for _, c := range cases {
		t.Run(strings.Join(append(words(c.Args), c.Name), " "), func(t *testing.T) {
			before := c.inDir(t)
			var errs bytes.Buffer
			status := use(t, c.Args, &errs)
			c.check(t, name, errs.String(), status, before)
		})
	}
}

// words returns the first arguments, which name the command.
func words(args []string) (names []string) {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") || strings.ContainsAny(arg, "/ ") {
			break
		}
		names = append(names, arg)
	}
	return names
}

// check checks what the program has said, and its status. before is what was in the directory.
func (c *Case) check(t *testing.T, program, said string, status int, before string) {
	t.Helper()
	if c.Status == 0 && status != 1 && status != 2 || c.Status != 0 && status != c.Status {
		t.Errorf("status %d, want %d", status, c.Status)
	}
	first := firstLine(said, program)
	switch {
	case strings.Contains(said, "panic:") || strings.Contains(said, "goroutine "):
		t.Error("it panics")
	case !strings.HasSuffix(said, "\n"):
		t.Error("the last line does not end")
	case first == "":
		t.Error("no line begins with the program's name, or with the place in a configuration")
	}
	for _, want := range c.Says {
		if !strings.Contains(said, want) {
			t.Errorf("it does not name %q", want)
		}
	}
	if after := c.inDir(t); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
	if t.Failed() {
		t.Logf("%s: %s", strings.Join(c.Args, " "), said)
	}
	c.note(t, program, first, status)
}

// firstLine returns the first line that names the mistake.
func firstLine(said, program string) string {
	for line := range strings.Lines(said) {
		place, _, in := strings.Cut(line, ": ")
		if strings.HasPrefix(line, program+": ") || in && strings.Contains(place, ".yaml") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// inDir lists the directory with sizes and times.
func (c *Case) inDir(t *testing.T) string {
	if c.Dir == "" {
		return ""
	}
	var all strings.Builder
	err := filepath.WalkDir(c.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&all, path, info.Mode(), info.Size(), info.ModTime())
		return nil
	})
	testenv.Must(t, err)
	return all.String()
}

// note adds a row to the table.
func (c *Case) note(t *testing.T, program, first string, status int) {
	name := os.Getenv(tableEnv)
	if name == "" {
		return
	}
	table.Lock()
	defer table.Unlock()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	testenv.Must(t, err)
	defer f.Close()
	cell := strings.NewReplacer("|", "\\|", "\n", " ")
	fmt.Fprintf(f, "| `%s` | %s | %s | %d |\n", cell.Replace(strings.Join(append([]string{program}, c.Args...), " ")), cell.Replace(c.Name), cell.Replace(first), status)
}
