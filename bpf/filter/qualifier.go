package filter

import (
	"fmt"
	"slices"
	"strings"
)

const starterText = "a test such as host, net, port, tcp, or vlan"

// qualifiers are the words in front of a value.
type qualifiers struct {
	offset int
	proto  string      // ip, tcp, ether ..., or ""
	dir    []direction // two for "src and dst"
	kind   string      // host, net, port, portrange, proto, multicast, broadcast, or ""
}

var protoQualifiers = []string{
	"ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "ether", "vlan",
}

// allowed are the protocols that may stand in front of each kind.
var allowed = map[string][]string{
	"host":      {"", "ip", "ip6", "arp", "rarp", "ether"},
	"net":       {"", "ip", "ip6", "arp", "rarp"},
	"port":      {"", "tcp", "udp", "sctp"},
	"portrange": {"", "tcp", "udp", "sctp"},
	"proto":     {"", "ip", "ip6", "ether"},
}

// qualifiers reads the words in front of a value. The next token is a starter,
// so at least one is taken.
func (p *parser) qualifiers() qualifiers {
	q := qualifiers{offset: p.peek().offset, dir: []direction{either}}
	q.proto, _ = p.takeWord(protoQualifiers...)
	directed := p.direction(&q)
	q.kind, _ = p.takeWord("host", "net", "port", "portrange", "proto", "multicast", "broadcast")
	if directed && q.kind == "" {
		q.kind = "host"
	}
	return q
}

// direction reads src, dst, or both with and or or between them.
func (p *parser) direction(q *qualifiers) bool {
	first, ok := p.takeWord("src", "dst")
	if !ok {
		return false
	}
	q.dir = []direction{directionOf(first)}
	joiner, second := p.peek(), p.ahead(1)
	both := (joiner.kind == and || joiner.kind == or) && second.kind == word &&
		(second.text == "src" || second.text == "dst") && second.text != first
	if !both {
		return true
	}
	p.at += 2
	q.dir = []direction{either}
	if joiner.kind == and {
		q.dir = []direction{source, destination}
	}
	return true
}

// directed reports whether a direction other than the default was given.
func (q qualifiers) directed() bool { return q.dir[0] != either }

func directionOf(word string) direction {
	if word == "src" {
		return source
	}
	return destination
}

// check refuses qualifiers that have no meaning together; t is the token behind
// them.
func (q qualifiers) check(t token) error {
	if !slices.Contains(allowed[q.kind], q.proto) {
		list := slices.DeleteFunc(slices.Clone(allowed[q.kind]), func(s string) bool { return s == "" })
		return &Error{offset: q.offset, problem: fmt.Sprintf("%q does not go with %q", q.proto, q.kind),
			expected: strings.Join(list, ", ") + " or nothing in front of " + q.kind}
	}
	if q.kind == "proto" && (q.directed()) {
		return &Error{offset: q.offset, problem: "a direction does not go with \"proto\""}
	}
	return nil
}

// word reads a protocol that stands alone: a test of its own.
func (p *parser) word(q qualifiers) (*node, error) {
	if t, ok := protoWords[q.proto]; ok {
		return leaf(t), nil
	}
	if number, ok := etherNames[q.proto]; ok {
		return leaf(test{subject: subjectEther, number: number}), nil
	}
	if q.proto == "vlan" {
		return p.vlan()
	}
	t := p.peek()
	return nil, &Error{offset: t.offset, problem: t.String() + " behind \"ether\"",
		expected: "host, src, dst, proto, multicast or broadcast"}
}

// vlan reads the number behind vlan, if there is one.
func (p *parser) vlan() (*node, error) {
	t := p.peek()
	if t.kind != word || !looksLikeValue(t.text) {
		return leaf(test{subject: subjectVLAN, number: anyNumber}), nil
	}
	p.take()
	number, err := parseNumber(t, 0, 4095, "a VLAN number from 0 to 4095")
	if err != nil {
		return nil, err
	}
	return leaf(test{subject: subjectVLAN, number: number}), nil
}

// cast makes the tests for multicast and broadcast.
func (q qualifiers) cast() (*node, error) {
	ether := q.proto == "" || q.proto == "ether"
	switch {
	case q.directed():
		return nil, &Error{offset: q.offset, problem: fmt.Sprintf("a direction does not go with %q", q.kind)}
	case ether && q.kind == "broadcast":
		all := [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		return leaf(test{subject: subjectMAC, direction: destination, mac: all}), nil
	case ether:
		return leaf(test{subject: subjectMulticast, family: anyNumber}), nil
	case q.kind == "multicast" && (q.proto == "ip" || q.proto == "ip6"):
		return leaf(test{subject: subjectMulticast, family: etherNames[q.proto]}), nil
	}
	return nil, &Error{offset: q.offset, problem: fmt.Sprintf("%q does not go with %q", q.proto, q.kind),
		expected: "[ether] broadcast, [ether] multicast, ip multicast or ip6 multicast"}
}
