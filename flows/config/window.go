package config

import (
	"strings"
	"unicode"
)

// maxLine is how many characters of a line are shown around a caret.
const maxLine = 120

// window is the part of line to print, made safe for a terminal, and the blank
// text which puts a caret under its column.
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

// span is the range of n characters to show, with column in the middle.
func span(n, column int) (first, last int) {
	if n <= maxLine {
		return 0, n
	}
	first = min(max(column-1-maxLine/2, 0), n-maxLine)
	return first, first + maxLine
}

// visible replaces what a terminal would act upon or not show.
func visible(r rune) rune {
	if r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return '\ufffd'
}

// oneLine makes a message safe for a terminal; it may quote the file.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if isBreak(r) {
			return ' '
		}
		return visible(r)
	}, s)
}

// gap is blank text as wide as r on a terminal.
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

// wide holds the characters which take two columns: those of East Asian Width
// W and F in Unicode Standard Annex 11, in whole blocks.
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
