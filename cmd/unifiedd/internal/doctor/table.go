package doctor

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/unifiedd/unifiedd/internal/printable"
)

// marks has the states as text, and colours those of a terminal (ECMA-48 SGR).
var (
	marks   = [...]string{OK: "ok", Unknown: "?", Warn: "warn", Fail: "FAIL"}
	colours = [...]string{OK: "32", Unknown: "36", Warn: "33", Fail: "1;31"}
)

// Table writes the report for people: a section for each subject, a line for each
// check, its remedy below it, and a summary.
func (r *Report) Table(w io.Writer, colour bool) error {
	b := bufio.NewWriter(w)
	width := r.width()
	for _, s := range r.Sections {
		fmt.Fprintf(b, "%s\n", printable.Text(s.Subject))
		for _, c := range s.Checks {
			fmt.Fprintf(b, "  %s  %-*s  %s\n", mark(c.State, colour), width, c.Name, printable.Lines(c.Detail))
			if c.Remedy != "" {
				fmt.Fprintf(b, "  %4s  %-*s  -> %s\n", "", width, "", printable.Lines(c.Remedy))
			}
		}
		fmt.Fprintln(b)
	}
	fmt.Fprintln(b, r.summary())
	return b.Flush()
}

// width returns the length of the longest name.
func (r *Report) width() int {
	n := 0
	for _, s := range r.Sections {
		for _, c := range s.Checks {
			n = max(n, len(c.Name))
		}
	}
	return n
}

// mark returns a state in four columns.
func mark(s State, colour bool) string {
	text := fmt.Sprintf("%-4s", marks[s])
	if !colour {
		return text
	}
	return "\x1b[" + colours[s] + "m" + text + "\x1b[0m"
}

// summary returns the number of checks in each state, worst first.
func (r *Report) summary() string {
	var parts []string
	for _, s := range []State{Fail, Warn, Unknown, OK} {
		if n := r.Count(s); n > 0 || s == OK {
			parts = append(parts, fmt.Sprintf("%d %s", n, marks[s]))
		}
	}
	return strings.Join(parts, ", ")
}
