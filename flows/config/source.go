package config

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pos is a place in a file. The zero Pos is no place: the setting came from a
// program.
type Pos struct {
	File   string
	Line   int // from 1
	Column int // from 1, in characters
}

// String is "file:line:column", or empty for no place.
func (p Pos) String() string {
	if p.Line == 0 {
		return ""
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

// source is the text of a file, split into lines as YAML 1.1 counts them.
type source struct {
	name  string
	lines []string
	width []int // of each line, in characters
}

// newSource splits text; there is always at least one line.
func newSource(name, text string) *source {
	s := &source{name: name}
	for {
		line, rest, more := cutLine(text)
		s.lines = append(s.lines, line)
		s.width = append(s.width, utf8.RuneCountInString(line))
		if !more {
			return s
		}
		text = rest
	}
}

// cutLine cuts text after its first line break: LF, CR, CR LF, NEL, LS or PS.
func cutLine(text string) (line, rest string, more bool) {
	i := strings.IndexFunc(text, isBreak)
	if i < 0 {
		return text, "", false
	}
	_, n := utf8.DecodeRuneInString(text[i:])
	if strings.HasPrefix(text[i:], "\r\n") {
		n = 2
	}
	return text[:i], text[i+n:], true
}

func isBreak(r rune) bool {
	switch r {
	case '\n', '\r', '\u0085', '\u2028', '\u2029':
		return true
	}
	return false
}

// at is the place at line and column, moved into the text if it is outside.
func (s *source) at(line, column int) Pos {
	line = min(max(line, 1), len(s.lines))
	column = min(max(column, 1), s.width[line-1]+1)
	return Pos{File: s.name, Line: line, Column: column}
}

// line is the text of the line p is in.
func (s *source) line(p Pos) string { return s.lines[p.Line-1] }

// from is the rest of p's line, beginning at p.
func (s *source) from(p Pos) string {
	rest := s.line(p)
	for range p.Column - 1 {
		_, n := utf8.DecodeRuneInString(rest)
		rest = rest[n:]
	}
	return rest
}

// offset is the place of the byte at off of the scalar with this value, which
// begins at p. It is known only where the value is written without escapes on
// one line.
func (s *source) offset(p Pos, value string, off int) (Pos, bool) {
	rest := s.from(p)
	quoted := strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, `'`)
	if quoted {
		rest = rest[1:]
		p.Column++
	}
	if off < 0 || off > len(value) || !strings.HasPrefix(rest, value) {
		return Pos{}, false
	}
	p.Column += utf8.RuneCountInString(value[:off])
	return p, true
}
