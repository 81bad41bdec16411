package filter

import "fmt"

// binding is the precedence of the operators, as in libpcap, where % and ^ bind everything that
// follows.
var binding = map[string]int{"|": 1, "&": 2, "<<": 3, ">>": 3, "+": 4, "-": 4, "*": 5, "/": 5, "%": 6, "^": 6}

var shiftSigns = map[string]byte{"<<": 'l', ">>": 'r'}

// relation reads a comparison of two terms. If there is none, it consumes nothing and returns nil.
func (p *parser) relation(depth int) (*node, error) {
	start, last := p.at, p.last
	t := p.peek()
	if !p.startsTerm() {
		return nil, nil
	}
	left, err := p.calculation(0, depth)
	sign := p.peek()
	if _, ok := relations[sign.text]; err == nil && sign.kind == operator && ok {
		p.take()
		right, err := p.calculation(0, depth)
		if err != nil {
			return nil, err
		}
		p.last = qualifiers{}
		r := relation{sign.text, left, right}
		return leafNode(t.offset, r.String(), r.lower), nil
	}
	if t.kind != open && p.committed > start {
		if err == nil {
			e := p.unexpected(sign)
			e.expected = "a comparison such as = 2 or > 5"
			return nil, e
		}
		return nil, err
	}
	p.at, p.last, p.committed = start, last, 0
	return nil, nil
}

// startsTerm reports whether the next token may begin a term.
func (p *parser) startsTerm() bool {
	t := p.peek()
	switch t.kind {
	case open:
		return true
	case operator:
		return t.text == "-"
	case word:
		if _, ok := number(t.text); ok {
			return true
		}
		return isLength(t.text) || p.ahead(1).text == "["
	}
	return false
}

func isLength(text string) bool { return text == "len" || text == "length" }

// calculation reads terms joined by operators whose precedence is at least this.
func (p *parser) calculation(least, depth int) (*term, error) {
	left, err := p.operandTerm(depth)
	if err != nil {
		return nil, err
	}
	for {
		t := p.peek()
		tight, ok := binding[t.text]
		if t.kind != operator || !ok || tight <= least {
			return left, nil
		}
		p.take()
		inner := tight
		if t.text == "%" || t.text == "^" {
			inner = 0
		}
		right, err := p.calculation(inner, depth+1)
		if err != nil {
			return nil, err
		}
		if left, err = joinTerms(t, left, right); err != nil {
			return nil, err
		}
	}
}

// joinTerms makes one term of two.
func joinTerms(t token, left, right *term) (*term, error) {
	sign, ok := shiftSigns[t.text]
	if !ok {
		sign = t.text[0]
	}
	joined := &term{sign: sign, kids: []*term{left, right}, depth: max(left.depth, right.depth) + 1}
	n, constant := right.constant()
	switch {
	case joined.depth > MaxDepth:
		return nil, tooLarge(t.offset, fmt.Sprintf("nested more than %d deep", MaxDepth))
	case constant && n == 0 && (sign == '/' || sign == '%'):
		return nil, &Error{offset: t.offset, problem: "a division by zero", expected: "another number after " + t.String()}
	case constant && n > 31 && ok:
		return nil, &Error{offset: t.offset, problem: "a shift by more than 31 bits", expected: "0 to 31 after " + t.String()}
	}
	return joined, nil
}

// operandTerm reads one term.
func (p *parser) operandTerm(depth int) (*term, error) {
	t := p.peek()
	if depth > MaxDepth {
		return nil, tooLarge(t.offset, fmt.Sprintf("nested more than %d deep", MaxDepth))
	}
	switch {
	case t.kind == open:
		return p.groupTerm(depth)
	case t.kind == operator && t.text == "-":
		p.take()
		inner, err := p.operandTerm(depth + 1)
		if err != nil {
			return nil, err
		}
		return &term{sign: 'n', kids: []*term{inner}, depth: inner.depth + 1}, nil
	case t.kind == word:
		if n, ok := number(t.text); ok {
			p.take()
			return &term{number: n}, nil
		}
		if isLength(t.text) {
			p.take()
			p.committed = p.at
			return &term{sign: 'L'}, nil
		}
		if p.ahead(1).text == "[" {
			return p.bytesTerm(depth)
		}
	}
	return nil, &Error{offset: t.offset, problem: t.String() + " where a number should be", expected: "a number, len, or bytes such as tcp[13] or ip[2:2]"}
}

func (p *parser) groupTerm(depth int) (*term, error) {
	p.take()
	inner, err := p.calculation(0, depth+1)
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != closing {
		return nil, p.unexpected(t)
	}
	p.take()
	return inner, nil
}

// bytesTerm reads layer[index:size].
func (p *parser) bytesTerm(depth int) (*term, error) {
	layer := p.take()
	name := layer.text
	if alias, ok := aliases[name]; ok {
		name = alias
	}
	p.take()
	p.committed = p.at
	if !hasBytes(name) {
		e := &Error{offset: layer.offset, problem: "no bytes can be taken from " + layer.String(),
			expected: "ether, ip, ip6, arp, tcp, udp, icmp, icmp6 or another protocol before ["}
		if e.suggest = suggest(name); e.suggest == name {
			e.suggest = ""
		}
		return nil, e
	}
	index, err := p.calculation(0, depth+1)
	if err != nil {
		return nil, err
	}
	size := uint32(1)
	if p.peek().text == ":" {
		p.take()
		t := p.take()
		if size, _ = number(t.text); size != 1 && size != 2 && size != 4 {
			return nil, &Error{offset: t.offset, problem: t.String() + " is no size", expected: "1, 2 or 4 bytes"}
		}
	}
	if t := p.peek(); t.text != "]" {
		e := p.unexpected(t)
		e.expected = `the "]" for the "[" behind ` + layer.text
		return nil, e
	}
	p.take()
	return &term{sign: '[', number: size, layer: name, kids: []*term{index}, depth: index.depth + 1}, nil
}
