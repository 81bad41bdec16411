package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// report collects the problems of one configuration. Settings go by their path,
// "flows[0].from.ring".
type report struct {
	src      *source         // nil: the Config was built by a program
	places   map[string]Pos  // of every value in the file
	settled  map[string]bool // paths with a problem which explains any other
	problems []Problem
	seen     map[mistake]bool
}

func newReport(src *source) *report {
	return &report{
		src:     src,
		places:  map[string]Pos{},
		settled: map[string]bool{},
		seen:    map[mistake]bool{},
	}
}

// mistake is what makes a problem the same one, whatever path leads to it.
type mistake struct {
	at   Pos
	text string
}

// hinted is an error with a hint apart from its text.
type hinted struct {
	text, hint string
}

func (h *hinted) Error() string { return h.text }

// wrong makes an error with a hint.
func wrong(hint, format string, args ...any) error {
	return &hinted{text: fmt.Sprintf(format, args...), hint: hint}
}

// add records what is wrong at a place, which is about the setting at path
// unless that is empty. What an alias repeats is recorded once.
func (r *report) add(at Pos, path string, err error) {
	p := Problem{File: at.File, Line: at.Line, Column: at.Column, Message: oneLine(err.Error())}
	if h := (*hinted)(nil); errors.As(err, &h) {
		p.Hint = h.hint
	}
	if at.Line > 0 {
		p.Source = r.src.line(at)
		m := mistake{at, p.Message}
		if r.seen[m] {
			return
		}
		r.seen[m] = true
	}
	if path != "" {
		p.Message = path + ": " + p.Message
	}
	r.problems = append(r.problems, p)
}

// refuse records what is wrong with the setting at path, unless a problem
// already known explains it.
func (r *report) refuse(path string, err error) {
	if !r.explained(path) {
		r.add(r.place(path), path, err)
	}
}

// settle says that path has its problem: no other is worth reporting.
func (r *report) settle(path string) { r.settled[path] = true }

// explained tells whether path, or a setting it is part of, has its problem.
func (r *report) explained(path string) bool {
	for ; path != ""; path = parent(path) {
		if r.settled[path] {
			return true
		}
	}
	return r.settled[""]
}

// place is where the setting at path is or, if it is not in the file, the
// innermost setting it would be part of.
func (r *report) place(path string) Pos {
	if r.src == nil {
		return Pos{}
	}
	for ; path != ""; path = parent(path) {
		if at, ok := r.places[path]; ok {
			return at
		}
	}
	return r.src.at(1, 1)
}

// parent is the path of the setting which path is part of; empty for the
// outermost ones.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// join is the path of the setting called key in the one at path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// index is the path of the i-th item of the list at path.
func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// err is all problems in the order of the file, or nil.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Errors{Problems: r.problems}
}
