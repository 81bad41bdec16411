package filter

import "fmt"

// Parse reads an expression. Errors are of type *[Error].
func Parse(text string) (*Expr, error) {
	if len(text) > MaxText {
		return nil, tooLarge(MaxText, fmt.Sprintf("longer than %d bytes", MaxText))
	}
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	if p.peek().kind == end {
		return &Expr{}, nil
	}
	root, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != end {
		return nil, p.unexpected(t)
	}
	return &Expr{root: root}, nil
}

// parser walks over the tokens. The last token is of kind end and is never
// passed, so looking one ahead is always possible.
type parser struct {
	tokens     []token
	at         int
	primitives int
	// last holds the qualifiers that a value without any takes, if valid.
	last qualifiers
}

func (p *parser) peek() token { return p.tokens[p.at] }

// ahead returns the token n behind the next.
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

// term reads what may stand on either side of an operator.
func (p *parser) term(depth int) (*node, error) {
	t := p.peek()
	if depth > MaxDepth {
		return nil, tooLarge(t.offset, fmt.Sprintf("nested more than %d deep", MaxDepth))
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
	start := p.take()
	n, err := p.expression(depth + 1)
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

// primitive reads a test: qualifiers and a value, or a value alone.
func (p *parser) primitive(depth int) (*node, error) {
	t := p.peek()
	if p.primitives++; p.primitives > MaxPrimitives {
		return nil, tooLarge(t.offset, fmt.Sprintf("more than %d tests", MaxPrimitives))
	}
	if !isStarter(t.text) {
		return p.bare(t)
	}
	q := p.qualifiers()
	p.last = qualifiers{}
	if q.kind == "" {
		return p.word(q)
	}
	if q.kind == "multicast" || q.kind == "broadcast" {
		return q.cast()
	}
	if err := q.check(p.peek()); err != nil {
		return nil, err
	}
	p.last = q
	return p.operand(q, depth)
}

// bare reads a value that takes the qualifiers of the one before it.
func (p *parser) bare(t token) (*node, error) {
	if p.last.kind != "" && looksLikeValue(t.text) {
		p.take()
		return p.last.value(t)
	}
	e := &Error{offset: t.offset, problem: t.String() + " is not a test", expected: starterText, suggest: suggest(t.text)}
	if looksLikeValue(t.text) {
		e.problem = t.String() + " has nothing in front of it that says what it is"
		e.suggest = qualify(t.text)
	}
	return nil, e
}

// operand reads the value behind qualifiers, or values in parentheses.
func (p *parser) operand(q qualifiers, depth int) (*node, error) {
	t := p.peek()
	switch {
	case t.kind == not || t.kind == open:
		return p.term(depth + 1)
	case t.kind == word:
		p.take()
		return q.value(t)
	}
	return nil, &Error{offset: t.offset, problem: t.String() + " where a value should be", expected: q.expected()}
}

// unexpected is the error for a token behind a whole expression.
func (p *parser) unexpected(t token) *Error {
	e := &Error{offset: t.offset, problem: t.String() + " is left over", expected: "and, or, or the end"}
	switch {
	case t.kind == end:
		e.problem = "the expression ends too early"
	case t.kind == word && !isStarter(t.text):
		e.suggest = suggest(t.text)
	}
	return e
}
