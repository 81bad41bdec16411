package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// report collects the problems of one configuration. The path of a setting identifies it:
// "flows[0].from.ring".
type report struct {
	src      *source         // nil: the Config was built by a program
	places   map[string]Pos  // of every value in the file
	settled  map[string]bool // paths with a reported problem; later ones there are not reported
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

// mistake identifies a problem that aliases reach by several paths.
type mistake struct {
	at   Pos
	text string
}

// hinted is an error with a separate hint.
type hinted struct {
	text, hint string
}

func (h *hinted) Error() string { return h.text }

// wrong returns an error with a hint.
func wrong(hint, format string, args ...any) error {
	return &hinted{text: fmt.Sprintf(format, args...), hint: hint}
}

// add records a problem at a place. The problem is about the setting at path, unless path is empty.
// A problem that an alias repeats is recorded once.
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

// refuse records what is wrong with the setting at path, unless a known problem explains it.
func (r *report) refuse(path string, err error) {
	if !r.explained(path) {
		r.add(r.place(path), path, err)
	}
}

// settle marks path as reported. Further problems at path are not reported.
func (r *report) settle(path string) { r.settled[path] = true }

// explained reports whether path, or a setting that contains it, is marked as reported.
func (r *report) explained(path string) bool {
	for ; path != ""; path = parent(path) {
		if r.settled[path] {
			return true
		}
	}
	return r.settled[""]
}

// place returns the place of the setting at path. If the file does not have it, that is the place
// of the innermost setting in the file that would contain it.
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

// parent returns the path of the setting that contains path; empty for an outermost setting.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// join returns the path of the setting called key in the one at path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// index returns the path of the i-th item of the list at path.
func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// err returns all problems in the order of the file, or nil.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Errors{Problems: r.problems}
}

// maxShown is the largest number of problems that Errors.Error prints.
const maxShown = 20

// Problem is one mistake in a configuration.
type Problem struct {
	File    string // empty for a Config built by a program
	Line    int    // from 1; 0 for a Config built by a program
	Column  int    // from 1, in characters
	Message string // names the setting by its path, "flows[0].from.ring: …"
	Source  string // the line, without its end
	Hint    string // the probable intention, or the possible values; may be empty
}

// Pos returns the problem's place.
func (p Problem) Pos() Pos { return Pos{File: p.File, Line: p.Line, Column: p.Column} }

// String formats the problem as a compiler would: the place and the message, the line, and a caret
// with the hint.
func (p Problem) String() string {
	var b strings.Builder
	p.write(&b)
	return b.String()
}

func (p Problem) write(b *strings.Builder) {
	if p.Line != 0 {
		fmt.Fprintf(b, "%s: ", p.Pos())
	}
	b.WriteString(p.Message)
	line, indent := window(p.Source, p.Column)
	if strings.TrimSpace(line) == "" { // there is nothing to point at
		if p.Hint != "" {
			b.WriteString("; " + p.Hint)
		}
		return
	}
	fmt.Fprintf(b, "\n    %s\n    %s^", line, indent)
	if p.Hint != "" {
		b.WriteString(" " + p.Hint)
	}
}

// Errors has all mistakes of a configuration, in the order of the file. It is never empty. Match it
// with errors.As.
type Errors struct {
	Problems []Problem
}

// Error formats the first 20 problems and the number of further ones.
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

// Pos is a place in a file. The zero Pos means no place: a program set the value.
type Pos struct {
	File   string
	Line   int // from 1
	Column int // from 1, in characters
}

// String returns "file:line:column", or an empty text without a place.
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

// newSource splits text into lines. There is always at least one line.
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

// at returns the place at line and column. It moves a place outside the text into the text.
func (s *source) at(line, column int) Pos {
	line = min(max(line, 1), len(s.lines))
	column = min(max(column, 1), s.width[line-1]+1)
	return Pos{File: s.name, Line: line, Column: column}
}

// line returns the text of the line that contains p.
func (s *source) line(p Pos) string { return s.lines[p.Line-1] }

// from returns the rest of p's line, beginning at p.
func (s *source) from(p Pos) string {
	rest := s.line(p)
	for range p.Column - 1 {
		_, n := utf8.DecodeRuneInString(rest)
		rest = rest[n:]
	}
	return rest
}

// offset returns the place of the byte at off in the scalar with this value. The scalar begins at
// p. The place is known only if the file has the value without escapes on one line.
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

// maxLine is the number of characters of a line to show around a caret.
const maxLine = 120

// window returns the part of line to print, safe for a terminal, and the blank text that puts a
// caret under its column.
func window(line string, column int) (shown, indent string) {
	runes := []rune(line)
	first, last := span(len(runes), column)
	var text, blank strings.Builder
	if first > 0 {
		text.WriteString("…")
		blank.WriteByte(' ')
	}
	for i := first; i < last; i++ {
		r := visible(runes[i])
		text.WriteRune(r)
		if i < column-1 {
			blank.WriteString(gap(r))
		}
	}
	if last < len(runes) {
		text.WriteString("…")
	}
	return strings.TrimRight(text.String(), " \t"), blank.String()
}

// span returns the range of n characters to show, with column in the middle.
func span(n, column int) (first, last int) {
	if n <= maxLine {
		return 0, n
	}
	first = min(max(column-1-maxLine/2, 0), n-maxLine)
	return first, first + maxLine
}

// visible replaces characters that a terminal interprets or does not show.
func visible(r rune) rune {
	if r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return '\ufffd'
}

// oneLine makes a message safe for a terminal. The message may quote the file.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if isBreak(r) {
			return ' '
		}
		return visible(r)
	}, s)
}

// gap returns blank text as wide as r on a terminal.
func gap(r rune) string {
	switch {
	case r == '\t':
		return "\t"
	case unicode.In(r, unicode.Mn, unicode.Me):
		return ""
	case unicode.Is(wide, r):
		return "  "
	}
	return " "
}

// wide has the characters that take two columns: those of East Asian Width W and F in Unicode
// Standard Annex 11, in whole blocks.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1},
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1},
		{Lo: 0x3041, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xa960, Hi: 0xa97f, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1},
		{Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1},
		{Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1},
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1},
	},
}

// maxWord is the length of the longest word that gets a suggestion.
const maxWord = 40

// suggest returns the candidate that word probably stands for, if there is one. Of two it prefers
// the longer, because people more often omit letters than add them.
func suggest(word string, candidates []string) (string, bool) {
	if len(word) > maxWord {
		return "", false
	}
	best, bound := "", min(max(1, len(word)/4), len(word)-1)
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d <= bound || best != "" && d == bound+1 && len(c) > len(best) {
			best, bound = c, d-1
		}
	}
	if best == "" {
		best = sameBeginning(word, candidates)
	}
	return best, best != ""
}

// mostNear is how many words nearest lists.
const mostNear = 20

// nearest lists words. Of many it lists those that are most like word, the most like it first.
func nearest(word string, all []string) string {
	if len(all) <= mostNear || len(word) > maxWord {
		return strings.Join(all, ", ")
	}
	near := slices.Clone(all)
	slices.SortStableFunc(near, func(a, b string) int { return cmp.Compare(distance(word, a), distance(word, b)) })
	return fmt.Sprintf("%s, and %d others", strings.Join(near[:mostNear], ", "), len(near)-mostNear)
}

// sameBeginning returns the first candidate that is a prefix of word or has word as a prefix. The
// prefix has at least three letters.
func sameBeginning(word string, candidates []string) string {
	for _, c := range candidates {
		n := min(len(word), len(c))
		if n >= 3 && strings.EqualFold(word[:n], c[:n]) {
			return c
		}
	}
	return ""
}

// didYouMean returns the hint for a suggestion.
func didYouMean(word string) string { return "did you mean " + quote(word) + "?" }

// distance returns the number of single-character edits and swaps of neighbours that turn a into b
// (optimal string alignment).
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	before, prev, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range s {
		row[0] = i + 1
		for j := range t {
			row[j+1] = min(prev[j+1]+1, row[j]+1, prev[j]+differ(s[i], t[j]))
			if i > 0 && j > 0 && s[i] == t[j-1] && s[i-1] == t[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(t)]
}

func differ(a, b rune) int {
	if a == b {
		return 0
	}
	return 1
}
