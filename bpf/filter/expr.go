package filter

import (
	"strings"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/need"
)

// Limits of an expression. They bound the work of [Parse] and the depth of recursion over its
// result. Whether the kernel accepts the result, its verifier decides.
const (
	// MaxText is the longest expression, in bytes.
	MaxText = 4 << 20
	// MaxPrimitives is the largest number of tests in one expression.
	MaxPrimitives = 1 << 16
	// MaxDepth is how deep parentheses, negations, and alternations of and with
	// or may nest.
	MaxDepth = 100
)

// Expr is a parsed expression. It does not change, and may be used from any
// goroutine. The zero value accepts everything.
type Expr struct {
	root    *node
	link    linktype.Type
	program program
}

// Fits reports whether the expression applies to packets of a link type.
func (e *Expr) Fits(of linktype.Type) bool { return e.All() || e.link == of }

// All reports whether the expression is empty, so that it accepts every packet.
func (e *Expr) All() bool { return e.root == nil }

// String prints the expression as it was parsed: abbreviations written out, groups in parentheses.
// The printed text parses to an expression that prints the same.
func (e *Expr) String() string {
	if e.All() {
		return ""
	}
	var b strings.Builder
	e.root.print(&b)
	return b.String()
}

type op uint8

const (
	opTest op = iota
	opAnd     // of two or more
	opOr      // of two or more
	opNot     // of one
)

// node is one operator or test of an expression.
type node struct {
	op     op
	kids   []*node
	test   func(*generator) cond
	text   string // of the test, as [Parse] reads it
	offset int    // of the test
	moves  moves  // of the test
	need   need.Need
	card   func() []Tuple // of the test; nil, or it returns nil: cards cannot express it
	depth  int
}

// moves says how a test changes the offset for later tests.
type moves uint8

const (
	stays moves = iota
	overTag
	inside // of another packet's payload
)

func (n *node) needing(what need.Need) *node {
	n.need = what
	return n
}

// onCard sets the tuple of a test; the zero Tuple: cards cannot express it.
func (n *node) onCard(t Tuple) *node {
	if t != (Tuple{}) {
		n.card = func() []Tuple { return []Tuple{t} }
	}
	return n
}

// onCards sets how the tuples of a test are made.
func (n *node) onCards(card func() []Tuple) *node {
	n.card = card
	return n
}

func leafNode(offset int, text string, test func(*generator) cond) *node {
	return &node{op: opTest, test: test, text: text, offset: offset, depth: 1}
}

// join joins two nodes in their order. A chain of the same operator is one flat node, so that long
// lists stay shallow.
func join(o op, left, right *node) *node {
	if left.op != o {
		left = &node{op: o, kids: []*node{left}, depth: left.depth + 1}
	}
	added := []*node{right}
	if right.op == o {
		added = right.kids
	}
	for _, k := range added {
		left.depth = max(left.depth, k.depth+1)
	}
	left.kids = append(left.kids, added...)
	return left
}

// negate returns the opposite of n.
func negate(n *node) *node {
	if n.op == opNot {
		return n.kids[0]
	}
	return &node{op: opNot, kids: []*node{n}, depth: n.depth + 1}
}

var joinerText = map[op]string{opAnd: " and ", opOr: " or "}

func (n *node) print(b *strings.Builder) {
	switch n.op {
	case opTest:
		b.WriteString(n.text)
	case opNot:
		b.WriteString("not ")
		n.kids[0].printGroup(b)
	default:
		for i, k := range n.kids {
			if i > 0 {
				b.WriteString(joinerText[n.op])
			}
			k.printGroup(b)
		}
	}
}

// printGroup prints n so that it can stand next to an operator.
func (n *node) printGroup(b *strings.Builder) {
	if n.op != opAnd && n.op != opOr {
		n.print(b)
		return
	}
	b.WriteByte('(')
	n.print(b)
	b.WriteByte(')')
}
