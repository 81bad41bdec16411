package archive

import (
	"fmt"
	"strings"
)

// Line is a line of kernels: the newest of a series in one suite of the archive.
type Line struct {
	// Name is the line's name for users: "6.1", "6.12" or "7".
	Name string
	// Suite is the suite that has its newest kernel.
	Suite string
}

var lines = []Line{
	{Name: "7", Suite: "trixie-backports"},
	{Name: "6.12", Suite: "bookworm-backports"},
	{Name: "6.1", Suite: "bookworm"},
}

// Lines returns every line, the default first.
func Lines() []Line { return append([]Line(nil), lines...) }

// ParseLine returns the line of that name; "" is the default.
func ParseLine(name string) (Line, error) {
	if name == "" {
		return lines[0], nil
	}
	var known []string
	for _, l := range lines {
		if l.Name == name {
			return l, nil
		}
		known = append(known, l.Name)
	}
	return Line{}, fmt.Errorf("no line of kernels %q: there are %s", name, strings.Join(known, ", "))
}
