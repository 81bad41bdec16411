package filter

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"
)

type kind uint8

const (
	end kind = iota
	word
	open
	closing
	not
	and
	or
	operator
)

// token is a piece of the expression; offset is in bytes.
type token struct {
	kind   kind
	text   string
	offset int
}

func (t token) String() string {
	if t.kind == end {
		return "the end"
	}
	return fmt.Sprintf("%q", t.text)
}

// signs are the tokens that need no space around them, longest first.
var signs = []struct {
	text string
	kind kind
}{
	{"&&", and}, {"||", or}, {"!=", operator}, {"==", operator}, {"<=", operator}, {">=", operator}, {"<<", operator}, {">>", operator},
	{"!", not}, {"(", open}, {")", closing}, {"[", operator}, {"]", operator}, {":", operator}, {"<", operator}, {">", operator}, {"=", operator},
	{"+", operator}, {"-", operator}, {"*", operator}, {"/", operator}, {"%", operator}, {"^", operator}, {"&", operator}, {"|", operator},
}

var joiners = map[string]kind{"and": and, "or": or, "not": not}

// lex cuts the expression into tokens; the last one is of kind end.
func lex(text string) ([]token, error) {
	var tokens []token
	inside := 0 // number of open brackets
	for at := 0; at < len(text); {
		if strings.IndexByte(" \t\r\n", text[at]) >= 0 {
			at++
			continue
		}
		t, err := next(text, at, inside > 0)
		if err != nil {
			return nil, err
		}
		switch t.text {
		case "[":
			inside++
		case "]":
			inside--
		}
		tokens = append(tokens, t)
		at += len(t.text)
	}
	return append(tokens, token{end, "", len(text)}), nil
}

// next returns the token at offset at, which is not a space.
func next(text string, at int, inside bool) (token, error) {
	if n := wordLength(text[at:], inside); n > 0 {
		t := token{word, text[at : at+n], at}
		if k, ok := joiners[t.text]; ok {
			t.kind = k
		}
		return t, nil
	}
	for _, s := range signs {
		if strings.HasPrefix(text[at:], s.text) {
			return token{s.kind, s.text, at}, nil
		}
	}
	r, _ := utf8.DecodeRuneInString(text[at:])
	return token{}, &Error{offset: at, problem: fmt.Sprintf("unexpected character %q", r)}
}

// wordLength is the length of the word that text begins with, 0 if it begins with none. Outside of
// brackets, addresses with colons are words. The length of a network is part of the word.
func wordLength(text string, inside bool) int {
	if text[0] == '\\' {
		return escapedLength(text)
	}
	n := nameLength(text)
	if inside {
		return n
	}
	if m := run(text, isAddressByte); m > n && strings.Contains(text[:m], ":") && looksLikeAddress(text[:m]) {
		n = m
	}
	if n == 0 || !strings.ContainsAny(text[:n], ".:") || n == len(text) || text[n] != '/' {
		return n
	}
	if m := run(text[n+1:], isDigit); m > 0 {
		n += 1 + m
	}
	return n
}

// nameLength is the length of letters and digits, with dots and inner dashes.
func nameLength(text string) int {
	if !isLetter(text[0]) && !isDigit(text[0]) {
		return 0
	}
	n := run(text, func(c byte) bool { return isLetter(c) || isDigit(c) || strings.IndexByte("._-", c) >= 0 })
	return len(strings.TrimRight(text[:n], "_-"))
}

// escapedLength is the length of a name after a backslash, which makes it no keyword.
func escapedLength(text string) int {
	if n := run(text[1:], func(c byte) bool { return strings.IndexByte(" !()\t\r\n[]&|", c) < 0 }); n > 0 {
		return 1 + n
	}
	return 0
}

// looksLikeAddress distinguishes addresses with colons, even malformed ones, from a number followed
// by a size.
func looksLikeAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil || strings.Count(text, ":") > 1
}

func run(text string, of func(byte) bool) int {
	n := 0
	for n < len(text) && of(text[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isAddressByte(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || c == ':' || c == '.'
}
