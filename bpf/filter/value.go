package filter

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// expected describes the value that the qualifiers need.
func (q qualifiers) expected() string {
	switch q.kind {
	case "host":
		if q.proto == "ether" {
			return "a MAC address such as 02:00:00:00:00:01, or a name of /etc/ethers"
		}
		return "an IPv4 or IPv6 address, or the name of a host"
	case "net":
		return "a network such as 10.0.0.0/8 or 2001:db8::/32, or a name of /etc/networks"
	case "port":
		return "a port from 0 to 65535, or the name of a service"
	case "portrange":
		return "a range of ports such as 6000-6100"
	}
	switch q.proto {
	case "ether":
		return "an ethertype from 0 to 0xffff, or ip, ip6, arp or another name"
	case "iso", "isis":
		return "a number from 0 to 255, or clnp, esis, isis"
	}
	return "a protocol number from 0 to 255, or tcp, udp, icmp or another name"
}

// value makes the node for one value after the qualifiers.
func (q qualifiers) value(t token) (*node, error) {
	switch q.kind {
	case "host", "net":
		return q.address(t)
	case "port", "portrange":
		return q.ports(t)
	}
	return q.protocol(t)
}

// wrong is the error for a value that does not fit the qualifiers.
func (q qualifiers) wrong(t token, suggest string) error {
	return &Error{offset: t.offset, problem: t.String() + " is not a value for " + q.kind,
		expected: q.expected(), suggest: suggest}
}

// text prints a test of these qualifiers.
func (q qualifiers) text(kind, value string) string {
	proto := q.proto
	if proto != "" {
		proto += " "
	}
	return proto + directionText[q.dir] + kind + " " + value
}

func (q qualifiers) address(t token) (*node, error) {
	name := strings.TrimPrefix(t.text, `\`)
	switch {
	case q.proto == "ether":
		return q.mac(t)
	case strings.Contains(t.text, ":"):
		return q.address6(t)
	case q.kind == "host" && isHostName(name):
		return q.host(t, name)
	case isHostName(name):
		if address, ok := networkNamed(name); ok {
			return q.test4(t, address, 32)
		}
	}
	return q.address4(t)
}

// host makes the tests of all addresses of a host that has a name.
func (q qualifiers) host(t token, name string) (*node, error) {
	found, err := hostNamed(name)
	if err != nil {
		return nil, &Error{offset: t.offset, problem: fmt.Sprintf("look up host %s: %v", t, err), expected: q.expected()}
	}
	var all *node
	for _, a := range found {
		at, address := token{word, a.String(), t.offset}, q.address4
		switch {
		case a.Is6() && (q.proto == "" || q.proto == "ip6"):
			address = q.address6
		case a.Is6() || q.proto == "ip6":
			continue
		}
		one, err := address(at)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = one
		} else {
			all = join(opOr, all, one)
		}
	}
	if all == nil {
		return nil, &Error{offset: t.offset, problem: fmt.Sprintf("host %s has no address of %s, only %v", t, q.proto, found)}
	}
	return all, nil
}

// mac makes the test of an Ethernet address.
func (q qualifiers) mac(t token) (*node, error) {
	mac, ok := parseMAC(t.text)
	if !ok {
		mac, ok = etherNamed(strings.TrimPrefix(t.text, `\`))
	}
	if !ok {
		return nil, q.wrong(t, "")
	}
	return leafNode(t.offset, q.text("host", net.HardwareAddr(mac[:]).String()), func(g *generator) cond { return g.macIs(q.dir, mac) }).
		onCards(func() []Tuple { return q.tuples(macEnds(mac)) }), nil
}

// parseMAC reads six numbers of up to two digits, all separated by the same sign, or twelve digits,
// optionally with a dot after each four.
func parseMAC(text string) (mac [6]byte, ok bool) {
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(":-.", r) })
	switch {
	case len(parts) == 3 && len(text) == 14 || len(parts) == 1 && len(text) == 12:
		digits := strings.Join(parts, "")
		parts = nil
		for at := 0; at+2 <= len(digits); at += 2 {
			parts = append(parts, digits[at:at+2])
		}
	}
	if len(parts) != 6 {
		return mac, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 16, 8)
		if err != nil || len(part) > 2 {
			return mac, false
		}
		mac[i] = byte(n)
	}
	return mac, true
}

// address6 makes the test of an IPv6 address or network.
func (q qualifiers) address6(t token) (*node, error) {
	if _, ok := parseMAC(t.text); ok {
		return nil, &Error{offset: t.offset, problem: t.String() + " is an Ethernet address", expected: "ether before " + q.kind}
	}
	text := t.text
	if !strings.Contains(text, "/") {
		text += "/128"
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return nil, q.wrong(t, "")
	case q.proto != "" && q.proto != "ip6":
		return nil, &Error{offset: t.offset, problem: t.String() + " is not an address of " + q.proto}
	case q.kind == "host" && prefix.Bits() != 128:
		return nil, q.wrong(t, "net "+t.text)
	case prefix.Masked() != prefix:
		return nil, strayBits(t, prefix.Masked().String())
	}
	address, mask := prefix.Addr().As16(), [16]byte{}
	copy(mask[:], net.CIDRMask(prefix.Bits(), 128))
	printed := q.text("net", prefix.String())
	if prefix.Bits() == 128 {
		printed = q.text("host", prefix.Addr().String())
	}
	return leafNode(t.offset, printed, func(g *generator) cond { return g.host6Is(q.dir, address, mask) }).needing(addressNeed(prefix)).
		onCards(func() []Tuple { return q.tuples(addressEnds(prefix)) }), nil
}

func strayBits(t token, suggest string) error {
	return &Error{offset: t.offset, problem: t.String() + " has bits set after its length", suggest: suggest}
}

// address4 makes the test of an IPv4 address or network. A shortened address is a network, even
// after host.
func (q qualifiers) address4(t token) (*node, error) {
	text, length, sized := strings.Cut(t.text, "/")
	address, bits, ok := parseIPv4(text)
	if !strings.Contains(text, ".") {
		address, bits, ok = lonely(q.kind, text)
	}
	switch {
	case !ok:
		return nil, q.wrong(t, "")
	case q.proto == "ip6":
		return nil, &Error{offset: t.offset, problem: t.String() + " is not an address of " + q.proto}
	case sized && q.kind == "host":
		return nil, q.wrong(t, "net "+t.text)
	}
	if sized {
		n, err := strconv.ParseUint(length, 10, 8)
		if err != nil || n > 32 {
			return nil, q.wrong(t, "")
		}
		bits = int(n)
	}
	mask := uint32(math.MaxUint32 << (32 - bits))
	if address&^mask != 0 {
		return nil, strayBits(t, prefix4(address&mask, bits).String())
	}
	return q.test4(t, address, bits)
}

// test4 makes the test of an IPv4 address or network.
func (q qualifiers) test4(t token, address uint32, bits int) (*node, error) {
	mask, prefix := uint32(math.MaxUint32<<(32-bits)), prefix4(address, bits)
	if q.proto == "ip6" {
		return nil, &Error{offset: t.offset, problem: t.String() + " is not an address of " + q.proto}
	}
	return leafNode(t.offset, q.text4(prefix), func(g *generator) cond {
		return g.hostIs(g.family(q.proto), q.dir, address, mask)
	}).needing(addressNeed(prefix)).onCards(func() []Tuple { return q.tuples(addressEnds(prefix)) }), nil
}

// maskedNet makes the test of an IPv4 address under a mask.
func (q qualifiers) maskedNet(t, m token) (*node, error) {
	address, _, ok := parseIPv4(t.text)
	if !ok || q.proto == "ether" || q.proto == "ip6" {
		return nil, q.wrong(t, "")
	}
	mask, _, ok := parseIPv4(m.text)
	switch {
	case !ok:
		return nil, &Error{offset: m.offset, problem: m.String() + " is no mask", expected: "a mask such as 255.255.0.0"}
	case address&^mask != 0:
		return nil, strayBits(t, "")
	}
	text := fmt.Sprintf("%s mask %s", prefix4(address, 32).Addr(), prefix4(mask, 32).Addr())
	return leafNode(t.offset, q.text("net", text), func(g *generator) cond {
		return g.hostIs(g.family(q.proto), q.dir, address, mask)
	}), nil
}

// lonely reads a number without dots as libpcap does: the first bytes of a network, or a whole
// address.
func lonely(kind, text string) (address uint32, bits int, ok bool) {
	address, ok = number(text)
	bits = 32
	for kind == "net" && address != 0 && address>>24 == 0 {
		address, bits = address<<8, bits-8
	}
	return address, bits, ok
}

func prefix4(address uint32, bits int) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], address)
	return netip.PrefixFrom(netip.AddrFrom4(b), bits)
}

func (q qualifiers) text4(prefix netip.Prefix) string {
	if prefix.IsSingleIP() {
		return q.text("host", prefix.Addr().String())
	}
	return q.text("net", prefix.String())
}

// family is the ethertype of a protocol, or anyNumber.
func (g *generator) family(proto string) int {
	if n, ok := etherProtocols[proto]; ok {
		return n
	}
	return anyNumber
}

// parseIPv4 reads up to four numbers separated by dots, the first bytes of an address, and returns
// how many bits they are.
func parseIPv4(text string) (address uint32, bits int, ok bool) {
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.ParseUint(part, 10, 8)
		if err != nil || bits == 32 {
			return 0, 0, false
		}
		bits += 8
		address |= uint32(n) << (32 - bits)
	}
	return address, bits, true
}

// ports makes the test of a port or a range of them.
func (q qualifiers) ports(t token) (*node, error) {
	low, proto, err := q.port(t)
	if err != nil && strings.Contains(t.text, "-") {
		return q.portRange(t)
	}
	if err != nil {
		return nil, err
	}
	return q.portNode(t, proto, low, low)
}

// portRange reads two ports with a dash between; names may have dashes, too. Two ports of different
// protocols, or of none in particular, make a range of any protocol. As in libpcap, the lower port may come
// last.
func (q qualifiers) portRange(t token) (*node, error) {
	if q.kind != "portrange" {
		return nil, q.wrong(t, "portrange "+t.text)
	}
	bare := q
	bare.proto = ""
	var why error
	for at := range len(t.text) {
		if t.text[at] != '-' {
			continue
		}
		low, proto, err := bare.port(token{word, t.text[:at], t.offset})
		if err != nil {
			why = cmp.Or(why, err)
			continue
		}
		high, other, err := bare.port(token{word, t.text[at+1:], t.offset + at + 1})
		if err != nil {
			why = err
			continue
		}
		return q.portRangeOf(t, min(low, high), max(low, high), proto, other)
	}
	return nil, why
}

// portRangeOf makes the test of a range whose ports have two protocols.
func (q qualifiers) portRangeOf(t token, low, high, proto, other int) (*node, error) {
	if proto != other {
		proto = anyNumber
	}
	if q.proto != "" {
		if own := ipProtocols[q.proto]; proto == anyNumber {
			proto = own
		} else if proto != own {
			return nil, ofOther(t, proto, q.proto)
		}
	}
	return q.portNode(t, proto, low, high)
}

// ofOther is the error for ports whose names belong to another protocol.
func ofOther(t token, proto int, wanted string) error {
	return &Error{offset: t.offset, problem: fmt.Sprintf("%s is a port of %s, not of %s", t, nameOf(ipProtocols, proto), wanted), expected: "its number"}
}

// port reads one port, by number or name, and the protocol that it belongs to.
func (q qualifiers) port(t token) (port, proto int, err error) {
	proto = anyNumber
	if q.proto != "" {
		proto = ipProtocols[q.proto]
	}
	if n, ok := number(t.text); ok && n <= 65535 {
		return int(n), proto, nil
	}
	port, of, ok := service(strings.TrimPrefix(t.text, `\`))
	switch {
	case !ok && looksLikeValue(t.text):
		return 0, 0, outOfRange(t, q.expected())
	case !ok:
		return 0, 0, &Error{offset: t.offset, problem: t.String() + " is no service this machine knows", expected: q.expected()}
	case proto == anyNumber:
		return port, of, nil
	case of != anyNumber && of != proto:
		return 0, 0, ofOther(t, of, q.proto)
	}
	return port, proto, nil
}

func (q qualifiers) portNode(t token, proto, low, high int) (*node, error) {
	if proto != anyNumber {
		q.proto = nameOf(ipProtocols, proto)
	}
	printed := q.text("port", strconv.Itoa(low))
	if low != high {
		printed = q.text("portrange", fmt.Sprintf("%d-%d", low, high))
	}
	return leafNode(t.offset, printed, func(g *generator) cond {
		return g.portIs(proto, q.dir, uint32(low), uint32(high))
	}).needing(portNeed(proto, low, high)).onCards(func() []Tuple { return q.tuples(portEnds(low, high)) }), nil
}

// protocol makes the test of a protocol, within the family in front of proto.
func (q qualifiers) protocol(t token) (*node, error) {
	names, most := ipProtocols, uint32(255)
	switch q.proto {
	case "ether":
		names, most = etherProtocols, 0xffff
	case "iso", "isis":
		names = isoProtocols
	}
	number, err := q.protocolNumber(t, names, most)
	if err != nil {
		return nil, err
	}
	proto := q.proto
	if proto != "" {
		proto += " "
	}
	format := "%s%s %d"
	if q.proto == "ether" {
		format = "%s%s 0x%04x"
	}
	made := leafNode(t.offset, fmt.Sprintf(format, proto, q.kind, number), func(g *generator) cond { return q.protocolIs(g, number) }).
		onCard(q.protocolTuple(number))
	switch {
	case q.proto == "ether":
		return made.needing(linkNeed(number)), nil
	case q.kind == "proto" && q.proto != "iso" && q.proto != "isis":
		return made.needing(protocolNeed(number)), nil
	}
	return made, nil
}

func (q qualifiers) protocolNumber(t token, names map[string]int, most uint32) (int, error) {
	name := strings.TrimPrefix(t.text, `\`)
	if n, ok := names[name]; ok {
		return n, nil
	}
	if n, ok := protocolNamed(name); ok && most == 255 && q.proto != "iso" && q.proto != "isis" {
		return n, nil
	}
	if n, ok := number(t.text); ok && n <= most {
		return int(n), nil
	}
	return 0, outOfRange(t, q.expected())
}

func (q qualifiers) protocolIs(g *generator, number int) cond {
	switch {
	case q.proto == "ether":
		return g.linkIs(number)
	case q.proto == "iso":
		return g.isoIs(number)
	case q.proto == "isis":
		return g.isisIs(uint32(number))
	case q.kind == "protochain":
		return g.chainIs(g.family(q.proto), number)
	}
	return g.protoIs(g.family(q.proto), number)
}
