package filter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/unifiedd/unifiedd/internal/need"
)

const starterText = "a test such as host, net, port, tcp, vlan or tcp[13] = 2"

// primitive reads a test: qualifiers and a value, or a value alone.
func (p *parser) primitive(depth int) (*node, error) {
	t := p.peek()
	if p.primitives++; p.primitives > MaxPrimitives {
		return nil, tooLarge(t.offset, fmt.Sprintf("more than %d tests", MaxPrimitives))
	}
	if !isStarter(t.text) {
		return p.bare(t)
	}
	if read, ok := singles[t.text]; ok {
		p.last = qualifiers{}
		return read(p)
	}
	q := p.qualifiers()
	p.last = qualifiers{}
	switch q.kind {
	case "":
		return q.alone(p.peek())
	case "multicast", "broadcast":
		return q.cast()
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	p.last = q
	n, err := p.operand(q, depth)
	p.last = q
	return n, err
}

// bare reads a value that takes the qualifiers of the one before it.
func (p *parser) bare(t token) (*node, error) {
	why, isRefused := refused[t.text]
	switch {
	case isRefused:
		return nil, &Error{offset: t.offset, problem: fmt.Sprintf("%s is not supported: %s", t, why)}
	case p.last.kind != "" && (looksLikeValue(t.text) || suggest(t.text) == ""):
		p.take()
		return p.value(p.last, t)
	}
	e := &Error{offset: t.offset, problem: t.String() + " is not a test", expected: starterText, suggest: suggest(t.text)}
	if looksLikeValue(t.text) {
		e.problem = t.String() + " has no qualifier that says what it is"
		e.suggest = qualify(t.text)
	}
	return nil, e
}

// operand reads the value after qualifiers, or values in parentheses.
func (p *parser) operand(q qualifiers, depth int) (*node, error) {
	t := p.peek()
	switch {
	case t.kind == not:
		p.take()
		return p.negated(p.operand(q, depth+1))
	case t.kind == open:
		return p.group(depth)
	case t.kind == word:
		p.take()
		return p.value(q, t)
	}
	return nil, &Error{offset: t.offset, problem: t.String() + " where a value should be", expected: q.expected()}
}

// value makes the node for a value, of which t was taken; a network may have a mask.
func (p *parser) value(q qualifiers, t token) (*node, error) {
	if _, ok := p.takeWord("mask"); ok && q.kind == "net" {
		return q.maskedNet(t, p.take())
	}
	return q.value(t)
}

// singles are the tests that take no qualifiers.
var singles map[string]func(*parser) (*node, error)

func init() { // the readers name the table through the parser
	singles = map[string]func(*parser) (*node, error){
		"vlan":    numbered("a VLAN number from 0 to 4095", 4095, overTag, (*generator).vlanIs),
		"mpls":    numbered("a label from 0 to 1048575", 1<<20-1, inside, (*generator).mplsIs),
		"pppoes":  numbered("a session from 0 to 65535", 1<<16-1, inside, (*generator).pppoesIs),
		"geneve":  numbered("a network from 0 to 16777215", 1<<24-1, inside, (*generator).geneveIs),
		"less":    sized("<=", above, true),
		"greater": sized(">=", atLeast, false),
		"llc":     (*parser).llc,
	}
}

// numbered reads a word and, if there is one, the number after it.
func numbered(expected string, most uint32, moves moves, test func(*generator, int) cond) func(*parser) (*node, error) {
	return func(p *parser) (*node, error) {
		name, t, value := p.take(), p.peek(), anyNumber
		made := leafNode(name.offset, name.text, func(g *generator) cond { return test(g, value) })
		made.moves = moves
		if t.kind != word || !looksLikeValue(t.text) {
			return made, nil
		}
		n, ok := number(t.text)
		if !ok || n > most {
			return nil, outOfRange(t, expected)
		}
		p.take()
		value = int(n)
		made.text = fmt.Sprintf("%s %d", name.text, n)
		if moves == overTag {
			made.need = need.Need{Kind: need.VLAN, Number: uint16(n)}
			if n < 4095 {
				made.onCard(Tuple{VLAN: uint16(n)})
			}
		}
		return made, nil
	}
}

// sized reads a bound of the length.
func sized(sign string, how compare, negated bool) func(*parser) (*node, error) {
	return func(p *parser) (*node, error) {
		name, t := p.take(), p.peek()
		n, ok := number(t.text)
		if !ok {
			return nil, outOfRange(t, "a length in bytes after "+name.text)
		}
		p.take()
		return leafNode(name.offset, fmt.Sprintf("len %s %d", sign, n), func(g *generator) cond {
			c := g.leaf([]instr{{op: opLdLen}}, how, n)
			if negated {
				return none(c)
			}
			return c
		}), nil
	}
}

// llc reads llc and, if there is one, the kind of frame after it.
func (p *parser) llc() (*node, error) {
	name, t := p.take(), p.peek()
	text, kind := "llc", [2]uint32{}
	if k, ok := llcKinds[strings.ToLower(t.text)]; ok && t.kind == word {
		p.take()
		text, kind = "llc "+strings.ToLower(t.text), k
	}
	return leafNode(name.offset, text, func(g *generator) cond { return g.llcIs(kind[0], kind[1]) }), nil
}

func outOfRange(t token, expected string) *Error {
	problem := t.String() + " is out of range or not a number"
	if t.kind == end {
		problem = "the expression ends where a number should be"
	}
	return &Error{offset: t.offset, problem: problem, expected: expected}
}

// looksLikeValue distinguishes numbers and addresses from misspelt words.
func looksLikeValue(text string) bool {
	return text != "" && (isDigit(text[0]) || strings.ContainsAny(text, ":./"))
}

// qualify suggests the qualifiers for a value without any.
func qualify(text string) string {
	switch {
	case strings.Contains(text, "/"):
		return "net " + text
	case strings.ContainsAny(text, ".:"):
		return "host " + text
	case strings.Contains(text, "-"):
		return "portrange " + text
	}
	return "port " + text
}

// anyNumber stands for "no number given".
const anyNumber = -1

// nameOf returns the word for a number, the shortest and first of several.
func nameOf(names map[string]int, number int) string {
	best := ""
	for name, n := range names {
		if n == number && (best == "" || len(name) < len(best) || len(name) == len(best) && name < best) {
			best = name
		}
	}
	if best == "" {
		return strconv.Itoa(number)
	}
	return best
}
