package filter

import (
	"fmt"
	"net/netip"
	"slices"
)

// Tuple is a rule that cards can compare a packet with: every field that is set must match. A zero
// field matches anything.
type Tuple struct {
	EtherType        uint16
	Version          uint8 // of IP
	Proto            uint8 // of IP
	Src, Dst         netip.Prefix
	SrcPort, DstPort uint16
	SrcMAC, DstMAC   [6]byte
	VLAN             uint16
}

// MaxTuples is the most tuples of an expression.
const MaxTuples = 64

// The IP protocols whose ports a tuple can have.
const (
	ProtoTCP  = 6
	ProtoUDP  = 17
	ProtoSCTP = 132
)

// Tuples returns the expression as rules of a card. A packet that it accepts fits one of them,
// except ARP and RARP, whose addresses cards do not compare. The tuples may fit more packets, for
// example tagged ones. Errors are of type *[Error] and name the first test that cards cannot
// express.
func (e *Expr) Tuples() ([]Tuple, error) {
	if e.All() {
		return nil, &Error{problem: "the expression accepts every packet", expected: "tests of protocol, addresses, ports or VLAN"}
	}
	all, err := e.root.tuples()
	if err != nil {
		return nil, err
	}
	var whole []Tuple
	for _, t := range all {
		whole = append(whole, t.whole()...)
	}
	return few(e.root, unique(whole))
}

// few returns an error for too many tuples, and for none.
func few(n *node, all []Tuple) ([]Tuple, error) {
	switch {
	case len(all) == 0:
		return nil, &Error{offset: n.first(), problem: "no packet is accepted"}
	case len(all) > MaxTuples:
		return nil, &Error{offset: n.first(), problem: fmt.Sprintf("more than %d combinations of values are accepted", MaxTuples), expected: "fewer, such as one direction or one protocol"}
	}
	return all, nil
}

func unique(all []Tuple) (kept []Tuple) {
	for _, t := range all {
		if !slices.Contains(kept, t) {
			kept = append(kept, t)
		}
	}
	return kept
}

// first returns the offset at which the node begins.
func (n *node) first() int {
	if n.op == opTest {
		return n.offset
	}
	return n.kids[0].first()
}

func (n *node) tuples() (all []Tuple, err error) {
	switch n.op {
	case opTest:
		if n.card != nil {
			all = n.card()
		}
		if all == nil {
			return nil, n.noWords()
		}
		return all, nil
	case opNot:
		return nil, &Error{offset: n.first(), problem: "cards cannot express not", expected: "what is accepted"}
	}
	for i, k := range n.kids {
		these, err := k.tuples()
		switch {
		case err != nil:
			return nil, err
		case n.op == opOr || i == 0:
			all = append(all, these...)
		default:
			all = crossed(all, these)
		}
		if len(all) > MaxTuples {
			return few(n, all)
		}
	}
	return all, nil
}

func (n *node) noWords() error {
	return &Error{offset: n.offset, problem: fmt.Sprintf("cards have no words for %q", n.text), expected: "tests of protocol, addresses, ports or VLAN"}
}

// crossed returns the tuples of packets that fit one of a and one of b.
func crossed(a, b []Tuple) (all []Tuple) {
	for _, x := range a {
		for _, y := range b {
			if t, ok := x.and(y); ok {
				all = append(all, t)
			}
		}
	}
	return all
}

// and returns the tuple of packets that fit both; ok is false if no packet does.
func (t Tuple) and(u Tuple) (_ Tuple, ok bool) {
	ok = same(&t.EtherType, u.EtherType) && same(&t.Version, u.Version) && same(&t.Proto, u.Proto) &&
		same(&t.SrcPort, u.SrcPort) && same(&t.DstPort, u.DstPort) && same(&t.SrcMAC, u.SrcMAC) && same(&t.DstMAC, u.DstMAC) &&
		same(&t.VLAN, u.VLAN) && narrow(&t.Src, u.Src) && narrow(&t.Dst, u.Dst)
	return t, ok && (t.EtherType == 0 || t.Version == 0)
}

func same[T comparable](a *T, b T) bool {
	var any T
	if *a == any {
		*a = b
	}
	return b == any || *a == b
}

// narrow sets a network to the smaller of two, if one contains the other.
func narrow(a *netip.Prefix, b netip.Prefix) bool {
	if !b.IsValid() || a.IsValid() && !a.Overlaps(b) {
		return !b.IsValid()
	}
	if !a.IsValid() || b.Bits() > a.Bits() {
		*a = b
	}
	return true
}

// whole adds the fields that a card needs: the version of IP and the transport.
func (t Tuple) whole() (all []Tuple) {
	protos, versions := []uint8{t.Proto}, []uint8{t.Version}
	if t.Proto == 0 && (t.SrcPort != 0 || t.DstPort != 0) {
		protos = []uint8{ProtoUDP, ProtoTCP, ProtoSCTP}
	}
	if t.Version == 0 && (t.Proto != 0 || len(protos) > 1) {
		versions = []uint8{4, 6}
	}
	for _, v := range versions {
		for _, p := range protos {
			one := t
			one.Version, one.Proto = v, p
			all = append(all, one)
		}
	}
	return all
}

// oneWord has the tests that are one word.
var oneWord = map[string]Tuple{
	"ip": {Version: 4}, "ip6": {Version: 6}, "arp": {EtherType: 0x0806}, "rarp": {EtherType: 0x8035},
	"tcp": {Proto: ProtoTCP}, "udp": {Proto: ProtoUDP}, "sctp": {Proto: ProtoSCTP}, "icmp": {Version: 4, Proto: 1}, "icmp6": {Version: 6, Proto: 58},
	"igmp": {Version: 4, Proto: 2}, "ah": {Proto: 51}, "esp": {Proto: 50}, "pim": {Proto: 103}, "vrrp": {Version: 4, Proto: 112},
}

// tuples returns the tuples of a test with these qualifiers, of which each end compares with one of the values.
func (q qualifiers) tuples(ends []atEnds) (all []Tuple) {
	in := oneWord[q.proto]
	if in.EtherType != 0 {
		return nil
	}
	for _, end := range ends {
		src, fits := in.and(end.src)
		dst, also := in.and(end.dst)
		if !fits || !also {
			continue
		}
		switch q.dir {
		case source:
			all = append(all, src)
		case destination:
			all = append(all, dst)
		case either:
			all = append(all, src, dst)
		default:
			if t, ok := src.and(dst); ok {
				all = append(all, t)
			}
		}
	}
	return all
}

// atEnds is a value at either end.
type atEnds struct{ src, dst Tuple }

func macEnds(mac [6]byte) []atEnds {
	if mac == [6]byte{} {
		return nil
	}
	return []atEnds{{Tuple{SrcMAC: mac}, Tuple{DstMAC: mac}}}
}

func addressEnds(prefix netip.Prefix) []atEnds {
	version := uint8(6)
	if prefix.Addr().Is4() {
		version = 4
	}
	return []atEnds{{Tuple{Version: version, Src: prefix}, Tuple{Version: version, Dst: prefix}}}
}

func portEnds(low, high int) (all []atEnds) {
	if low == 0 || high-low >= MaxTuples {
		return nil
	}
	for p := low; p <= high; p++ {
		all = append(all, atEnds{Tuple{SrcPort: uint16(p)}, Tuple{DstPort: uint16(p)}})
	}
	return all
}

// protocolTuple returns the tuple of a test of a protocol's number, the zero Tuple if cards have none.
func (q qualifiers) protocolTuple(n int) (t Tuple) {
	switch {
	case n == 0 || q.kind != "proto":
	case q.proto == "ether" && n == etherIPv4:
		t.Version = 4
	case q.proto == "ether" && n == etherIPv6:
		t.Version = 6
	case q.proto == "ether" && n >= 0x600:
		t.EtherType = uint16(n)
	case q.proto == "" || q.proto == "ip" || q.proto == "ip6":
		t = oneWord[q.proto]
		t.Proto = uint8(n)
	}
	return t
}
