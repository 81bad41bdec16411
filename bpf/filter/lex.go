package filter

import (
	"fmt"
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
}{{"&&", and}, {"||", or}, {"!", not}, {"(", open}, {")", closing}}

var joiners = map[string]kind{"and": and, "or": or, "not": not}

// lex cuts the expression into tokens; the last one is of kind end.
func lex(text string) ([]token, error) {
	var tokens []token
	for at := 0; at < len(text); {
		if strings.IndexByte(" \t\r\n", text[at]) >= 0 {
			at++
			continue
		}
		t, err := next(text, at)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
		at += len(t.text)
	}
	return append(tokens, token{end, "", len(text)}), nil
}

// next returns the token at offset at, where there is no space.
func next(text string, at int) (token, error) {
	for _, s := range signs {
		if strings.HasPrefix(text[at:], s.text) {
			return token{s.kind, s.text, at}, nil
		}
	}
	n := 0
	for at+n < len(text) && isWordByte(text[at+n]) {
		n++
	}
	if n == 0 {
		return token{}, strange(text, at)
	}
	t := token{word, text[at : at+n], at}
	if k, ok := joiners[t.text]; ok {
		t.kind = k
	}
	return t, nil
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte(".:/-_\\", c) >= 0
}

// strange is the error for a character no token starts with.
func strange(text string, at int) error {
	r, _ := utf8.DecodeRuneInString(text[at:])
	e := &Error{offset: at, problem: fmt.Sprintf("unexpected character %q", r)}
	switch r {
	case '&':
		e.suggest = "&&"
	case '|':
		e.suggest = "||"
	case '[':
		e.problem = "tests of single bytes, as in tcp[13], are not supported"
	}
	return e
}
