package config

import (
	"fmt"
	"strings"
)

// maxShown is how many problems Errors.Error writes out.
const maxShown = 20

// Problem is one mistake in a configuration.
type Problem struct {
	File    string // empty for a Config built by a program
	Line    int    // from 1; 0 for a Config built by a program
	Column  int    // from 1, in characters
	Message string // names the setting by its path, "flows[0].from.ring: …"
	Source  string // the line, without its end
	Hint    string // what was probably meant, or what is possible; may be empty
}

// Pos is the problem's place.
func (p Problem) Pos() Pos { return Pos{File: p.File, Line: p.Line, Column: p.Column} }

// String is the problem as a compiler would print it: the place and the
// message, the line, and a caret with the hint.
func (p Problem) String() string {
	var b strings.Builder
	p.write(&b)
	return b.String()
}

func (p Problem) write(b *strings.Builder) {
	if p.Line == 0 {
		b.WriteString(p.Message)
		if p.Hint != "" {
			b.WriteString("; " + p.Hint)
		}
		return
	}
	line, indent := window(p.Source, p.Column)
	fmt.Fprintf(b, "%s: %s\n    %s\n    %s^", p.Pos(), p.Message, line, indent)
	if p.Hint != "" {
		b.WriteString(" " + p.Hint)
	}
}

// Errors is all mistakes of a configuration, in the order of the file. It is
// never empty. Match it with errors.As.
type Errors struct {
	Problems []Problem
}

// Error writes out the first 20 problems and says how many more there are.
func (e *Errors) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == maxShown {
			fmt.Fprintf(&b, "and %d more", len(e.Problems)-maxShown)
			break
		}
		p.write(&b)
	}
	return b.String()
}
