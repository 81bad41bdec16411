package filter

import (
	"fmt"

	"github.com/unifiedd/unifiedd/internal/linktype"
)

// Parse reads an expression about Ethernet frames. Errors are of type *[Error]; they match [ErrRejectsAll] for an expression
// that no packet satisfies.
func Parse(text string) (*Expr, error) { return ParseFor(linktype.Ethernet, text) }

// Takes reports whether [ParseFor] takes expressions about packets of a link type.
func Takes(of linktype.Type) bool { return of == linktype.Ethernet || of == linktype.RawIP }

// ParseFor is Parse for packets of a link type, which is Ethernet or raw IP.
func ParseFor(of linktype.Type, text string) (*Expr, error) {
	if !Takes(of) {
		return nil, &Error{problem: fmt.Sprintf("filters know packets of link type %v and %v, and these are of %v",
			linktype.Ethernet, linktype.RawIP, of)}
	}
	if len(text) > MaxText {
		return nil, tooLarge(MaxText, fmt.Sprintf("longer than %d bytes", MaxText))
	}
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	if p.peek().kind == end {
		return &Expr{link: of}, nil
	}
	root, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != end {
		return nil, p.unexpected(t)
	}
	g := newGenerator(of)
	c := g.lower(root)
	if g.err != nil {
		return nil, g.err
	}
	e := &Expr{root: root, link: of, program: compile(c)}
	if e.program.rejectsAll() {
		return nil, &Error{offset: root.first(), problem: rejectsAllText, cause: ErrRejectsAll}
	}
	return e, nil
}

// parser walks over the tokens. The last token is of kind end and is never
// passed, so looking one ahead is always possible.
type parser struct {
	tokens     []token
	at         int
	primitives int
	committed  int // up to here the text can only be a calculation
	// last holds the qualifiers that a value without any takes, if valid.
	last qualifiers
}

func (p *parser) peek() token { return p.tokens[p.at] }

// ahead returns the token n places after the next one.
func (p *parser) ahead(n int) token {
	return p.tokens[min(p.at+n, len(p.tokens)-1)]
}

func (p *parser) take() token {
	t := p.peek()
	if t.kind != end {
		p.at++
	}
	return t
}

// takeWord takes the next token if it is one of the words.
func (p *parser) takeWord(words ...string) (string, bool) {
	for _, w := range words {
		if t := p.peek(); t.kind == word && t.text == w {
			p.at++
			return w, true
		}
	}
	return "", false
}

// expression reads terms joined by and and or, which bind equally and group
// from the left.
func (p *parser) expression(depth int) (*node, error) {
	left, err := p.term(depth)
	if err != nil {
		return nil, err
	}
	for {
		t := p.peek()
		if t.kind != and && t.kind != or {
			return left, nil
		}
		p.take()
		right, err := p.term(depth)
		if err != nil {
			return nil, err
		}
		left = join(map[kind]op{and: opAnd, or: opOr}[t.kind], left, right)
		if left.depth > MaxDepth {
			return nil, tooLarge(t.offset, fmt.Sprintf("nested more than %d deep", MaxDepth))
		}
	}
}

// term reads one operand of and or or.
func (p *parser) term(depth int) (*node, error) {
	t := p.peek()
	if depth > MaxDepth {
		return nil, tooLarge(t.offset, fmt.Sprintf("nested more than %d deep", MaxDepth))
	}
	if n, err := p.relation(depth); n != nil || err != nil {
		return n, err
	}
	switch t.kind {
	case not:
		p.take()
		return p.negated(p.term(depth + 1))
	case open:
		return p.group(depth)
	case word:
		return p.primitive(depth)
	}
	return nil, &Error{offset: t.offset, problem: t.String() + " where a test should be", expected: starterText}
}

func (p *parser) negated(n *node, err error) (*node, error) {
	if err != nil {
		return nil, err
	}
	return negate(n), nil
}

// group reads an expression in parentheses.
func (p *parser) group(depth int) (*node, error) {
	start, last := p.take(), p.last
	n, err := p.expression(depth + 1)
	p.last = last
	if err != nil {
		return nil, err
	}
	if t := p.take(); t.kind != closing {
		e := p.unexpected(t)
		e.expected = fmt.Sprintf(`and, or, or the ")" for the "(" at byte %d`, start.offset)
		return nil, e
	}
	return n, nil
}

// unexpected is the error for a token after a complete expression.
func (p *parser) unexpected(t token) *Error {
	e := &Error{offset: t.offset, problem: t.String() + " is left over", expected: "and, or, or the end"}
	switch {
	case t.kind == end:
		e.problem = "the expression ends too early"
	case t.kind == word && !isStarter(t.text):
		e.suggest = suggest(t.text)
	case t.text == "&" || t.text == "|":
		e.suggest = t.text + t.text
	}
	return e
}
