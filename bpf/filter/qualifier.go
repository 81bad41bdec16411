package filter

import (
	"fmt"
	"slices"
	"strings"
)

// direction says which end of a packet a test compares: source or destination.
type direction uint8

const (
	either direction = iota
	source
	destination
	both
)

var directionText = [...]string{either: "src or dst ", source: "src ", destination: "dst ", both: "src and dst "}

// qualifiers are the words in front of a value.
type qualifiers struct {
	offset int
	proto  string // ip, tcp, ether ..., or ""
	dir    direction
	kind   string // host, net, port, portrange, proto, protochain, multicast, broadcast, or ""
}

// allowed are the protocols that may stand in front of each kind.
var allowed = map[string][]string{
	"host":       {"", "ip", "ip6", "arp", "rarp", "ether"},
	"net":        {"", "ip", "ip6", "arp", "rarp"},
	"port":       {"", "tcp", "udp", "sctp"},
	"portrange":  {"", "tcp", "udp", "sctp"},
	"proto":      {"", "ip", "ip6", "ether", "iso", "isis"},
	"protochain": {"", "ip", "ip6"},
}

// qualifiers reads the words in front of a value. The next token is a starter,
// so at least one is taken.
func (p *parser) qualifiers() qualifiers {
	q := qualifiers{offset: p.peek().offset}
	q.proto = p.layer()
	directed := p.direction(&q)
	q.kind, _ = p.takeWord("host", "net", "port", "portrange", "proto", "protochain", "multicast", "broadcast")
	if directed && q.kind == "" {
		q.kind = "host"
	}
	return q
}

// layer reads the name of a protocol, or nothing.
func (p *parser) layer() string {
	name := p.peek().text
	if alias, ok := aliases[name]; ok {
		name = alias
	}
	if abbreviations[name] == nil && name != "ether" {
		return ""
	}
	p.take()
	return name
}

// direction reads src, dst, or both with and or or between them.
func (p *parser) direction(q *qualifiers) bool {
	first, ok := p.takeWord("src", "dst")
	if !ok {
		return false
	}
	q.dir = directionOf(first)
	joiner, second := p.peek(), p.ahead(1)
	two := (joiner.kind == and || joiner.kind == or) && second.kind == word &&
		(second.text == "src" || second.text == "dst") && second.text != first
	if !two {
		return true
	}
	p.at += 2
	q.dir = either
	if joiner.kind == and {
		q.dir = both
	}
	return true
}

func directionOf(word string) direction {
	if word == "src" {
		return source
	}
	return destination
}

// check refuses qualifiers that have no meaning together.
func (q qualifiers) check() error {
	if !slices.Contains(allowed[q.kind], q.proto) {
		list := slices.DeleteFunc(slices.Clone(allowed[q.kind]), func(s string) bool { return s == "" })
		return &Error{offset: q.offset, problem: fmt.Sprintf("%q does not go with %q", q.proto, q.kind),
			expected: strings.Join(list, ", ") + " or nothing before " + q.kind}
	}
	if strings.HasPrefix(q.kind, "proto") && q.dir != either {
		return &Error{offset: q.offset, problem: fmt.Sprintf("a direction does not go with %q", q.kind)}
	}
	return nil
}

// alone makes a test of a protocol without a value. t is the token after it.
func (q qualifiers) alone(t token) (*node, error) {
	if test := abbreviations[q.proto]; test != nil {
		return leafNode(q.offset, q.proto, test).needing(wordNeed(q.proto)).onCard(oneWord[q.proto]), nil
	}
	if why, ok := refused[t.text]; ok {
		return nil, &Error{offset: t.offset, problem: fmt.Sprintf("%s is not supported: %s", t, why)}
	}
	return nil, &Error{offset: t.offset, problem: t.String() + " after \"ether\"",
		expected: "host, src, dst, proto, multicast or broadcast"}
}

// cast makes the tests for multicast and broadcast.
func (q qualifiers) cast() (*node, error) {
	ether := q.proto == "" || q.proto == "ether"
	switch {
	case q.dir != either:
		return nil, &Error{offset: q.offset, problem: fmt.Sprintf("a direction does not go with %q", q.kind)}
	case ether && q.kind == "broadcast":
		everybody := [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		return leafNode(q.offset, "ether broadcast", func(g *generator) cond { return g.macIs(destination, everybody) }), nil
	case ether:
		return leafNode(q.offset, "ether multicast", func(g *generator) cond {
			return g.ethernet(func() cond { return g.bits(g.header, 1, 1) })
		}), nil
	case q.kind == "multicast" && q.proto == "ip":
		return leafNode(q.offset, "ip multicast", func(g *generator) cond {
			return allOf(g.linkIs(etherIPv4), g.leaf(load(g.field(16), 1), atLeast, 224))
		}), nil
	case q.kind == "multicast" && q.proto == "ip6":
		return leafNode(q.offset, "ip6 multicast", func(g *generator) cond {
			return allOf(g.linkIs(etherIPv6), g.is(g.field(24), 1, 0xff))
		}), nil
	case q.proto == "ip":
		return nil, &Error{offset: q.offset, problem: "\"ip broadcast\" is not supported: packets do not say the mask of their network",
			expected: "the addresses themselves, as in dst host 255.255.255.255 or dst host 192.0.2.255"}
	}
	return nil, &Error{offset: q.offset, problem: fmt.Sprintf("%q does not go with %q", q.proto, q.kind),
		expected: "[ether] broadcast, [ether] multicast, ip multicast or ip6 multicast"}
}
