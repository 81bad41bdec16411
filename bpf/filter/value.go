package filter

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// looksLikeValue tells numbers and addresses from misspelt words.
func looksLikeValue(text string) bool {
	return text[0] >= '0' && text[0] <= '9' || strings.ContainsAny(text, ":./")
}

// qualify guesses what a value alone was meant to be.
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

// expected says which value belongs behind the qualifiers.
func (q qualifiers) expected() string {
	switch q.kind {
	case "host":
		if q.proto == "ether" {
			return "a MAC address such as 02:00:00:00:00:01"
		}
		return "an IPv4 or IPv6 address (names are not looked up)"
	case "net":
		return "a network such as 10.0.0.0/8 or 2001:db8::/32"
	case "port":
		return "a port number from 0 to 65535 (names are not looked up)"
	case "portrange":
		return "a range of ports such as 6000-6100"
	}
	if q.proto == "ether" {
		return "an ethertype from 0x600 to 0xffff, or ip, ip6, arp, rarp"
	}
	return "a protocol number from 0 to 255, or tcp, udp, sctp, icmp, icmp6, igmp"
}

// value makes the node for one value behind the qualifiers.
func (q qualifiers) value(t token) (*node, error) {
	made, err := q.test(t)
	if err != nil {
		return nil, err
	}
	var n *node
	for _, d := range q.dir {
		made.direction = d
		if n == nil {
			n = leaf(made)
			continue
		}
		n = join(opAnd, n, leaf(made))
	}
	if family, ok := etherNames[q.proto]; ok && made.subject == subjectNet {
		n = join(opAnd, leaf(test{subject: subjectEther, number: family}), n)
	}
	return n, nil
}

func (q qualifiers) test(t token) (test, error) {
	switch q.kind {
	case "host":
		if q.proto == "ether" {
			return q.mac(t)
		}
		return q.host(t)
	case "net":
		return q.net(t)
	case "port":
		return q.port(t)
	case "portrange":
		return q.portRange(t)
	}
	return q.protocol(t)
}

// wrong is the error for a value that is not what the qualifiers ask for.
func (q qualifiers) wrong(t token, suggest string) error {
	return &Error{offset: t.offset, problem: t.String() + " is not a value for " + q.kind,
		expected: q.expected(), suggest: suggest}
}

func (q qualifiers) mac(t token) (test, error) {
	mac, err := net.ParseMAC(t.text)
	if err != nil || len(mac) != 6 {
		return test{}, q.wrong(t, "")
	}
	return test{subject: subjectMAC, mac: [6]byte(mac)}, nil
}

func (q qualifiers) host(t token) (test, error) {
	addr, err := netip.ParseAddr(t.text)
	if err != nil {
		if _, err := netip.ParsePrefix(t.text); err == nil {
			return test{}, q.wrong(t, "net "+t.text)
		}
		return test{}, q.wrong(t, "")
	}
	return q.prefix(t, netip.PrefixFrom(addr, addr.BitLen()))
}

func (q qualifiers) net(t token) (test, error) {
	prefix, ok := parsePrefix(t.text)
	if !ok {
		return test{}, q.wrong(t, "")
	}
	if masked := prefix.Masked(); masked != prefix {
		return test{}, &Error{offset: t.offset, suggest: masked.String(),
			problem: fmt.Sprintf("%s has bits set behind its first %d", t, prefix.Bits())}
	}
	return q.prefix(t, prefix)
}

// prefix checks that the addresses are of the protocol in front of them.
func (q qualifiers) prefix(t token, prefix netip.Prefix) (test, error) {
	v4 := prefix.Addr().Is4()
	if q.proto != "" && v4 != (q.proto != "ip6") {
		return test{}, &Error{offset: t.offset, problem: fmt.Sprintf("%s is not an address of %q", t, q.proto)}
	}
	if prefix.Addr().Zone() != "" {
		return test{}, q.wrong(t, "")
	}
	return test{subject: subjectNet, prefix: prefix}, nil
}

// parsePrefix reads a network. As in tcpdump the length may be missing, and so
// may the last bytes of an IPv4 network: 10 is 10.0.0.0/8.
func parsePrefix(text string) (netip.Prefix, bool) {
	address, bits, sized := strings.Cut(text, "/")
	length := -1
	if !strings.Contains(address, ":") {
		if missing := 3 - strings.Count(address, "."); missing > 0 {
			address += strings.Repeat(".0", missing)
			length = 32 - 8*missing
		}
	}
	addr, err := netip.ParseAddr(address)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	if sized {
		prefix, err := netip.ParsePrefix(address + "/" + bits)
		return prefix, err == nil
	}
	if length < 0 {
		length = addr.BitLen()
	}
	return netip.PrefixFrom(addr, length), true
}

func (q qualifiers) port(t token) (test, error) {
	if strings.Contains(t.text, "-") {
		return test{}, q.wrong(t, "portrange "+t.text)
	}
	port, err := parseNumber(t, 0, 65535, q.expected())
	return q.ports(port, port), err
}

func (q qualifiers) portRange(t token) (test, error) {
	from, to, both := strings.Cut(t.text, "-")
	low, err := parseNumber(token{word, from, t.offset}, 0, 65535, q.expected())
	if err != nil || !both {
		return q.ports(low, low), err
	}
	high, err := parseNumber(token{word, to, t.offset + len(from) + 1}, 0, 65535, q.expected())
	if err != nil {
		return test{}, err
	}
	if low > high {
		return test{}, &Error{offset: t.offset, problem: t.String() + " ends before it begins",
			suggest: fmt.Sprintf("%d-%d", high, low)}
	}
	return q.ports(low, high), nil
}

func (q qualifiers) ports(low, high int) test {
	number, ok := protoNames[q.proto]
	if !ok {
		number = anyNumber
	}
	return test{subject: subjectPort, number: number, low: uint16(low), high: uint16(high)}
}

func (q qualifiers) protocol(t token) (test, error) {
	name := strings.TrimPrefix(t.text, `\`)
	if q.proto == "ether" {
		return q.etherType(t, name)
	}
	number, ok := protoNames[name]
	if !ok {
		var err error
		if number, err = parseNumber(t, 0, 255, q.expected()); err != nil {
			return test{}, err
		}
	}
	family, ok := etherNames[q.proto]
	if !ok {
		family = anyNumber
	}
	return protoTest(family, number), nil
}

func (q qualifiers) etherType(t token, name string) (test, error) {
	if number, ok := etherNames[name]; ok {
		return test{subject: subjectEther, number: number}, nil
	}
	number, err := parseNumber(t, 0x600, 0xffff, q.expected())
	return test{subject: subjectEther, number: number}, err
}

// parseNumber reads a decimal or hexadecimal (0x) number from low to high.
func parseNumber(t token, low, high int, expected string) (int, error) {
	digits, base := t.text, 10
	if len(digits) > 2 && (digits[:2] == "0x" || digits[:2] == "0X") {
		digits, base = digits[2:], 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil || int64(n) < int64(low) || int64(n) > int64(high) {
		return 0, &Error{offset: t.offset, problem: t.String() + " is out of range or not a number", expected: expected}
	}
	return int(n), nil
}
