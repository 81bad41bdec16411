package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// This file says what a filter means a second time: straight from the bytes of
// a packet, for the text that Expr.String prints. It shares nothing with the
// parser, the compiler and the XDP program.

// facts are what a packet says of itself.
type facts struct {
	dstMAC, srcMAC net.HardwareAddr
	tags           []int
	ethertype      int
	src, dst       netip.Addr // not valid without addresses
	proto          int        // -1 when unknown
	ports          []int      // source and destination, or none
}

func examine(p []byte) facts {
	f := facts{dstMAC: net.HardwareAddr(p[:6]), srcMAC: net.HardwareAddr(p[6:12]), proto: -1}
	f.ethertype = int(binary.BigEndian.Uint16(p[12:]))
	p = p[14:]
	for len(f.tags) < 2 && (f.ethertype == 0x8100 || f.ethertype == 0x88a8 || f.ethertype == 0x9100) {
		if len(p) < 4 {
			return f
		}
		f.tags = append(f.tags, int(binary.BigEndian.Uint16(p)&0xfff))
		f.ethertype = int(binary.BigEndian.Uint16(p[2:]))
		p = p[4:]
	}
	switch {
	case f.ethertype == 0x0800 && len(p) >= 20:
		f.examine4(p)
	case f.ethertype == 0x86dd && len(p) >= 40:
		f.examine6(p)
	case (f.ethertype == 0x0806 || f.ethertype == 0x8035) && len(p) >= 28 && p[4] == 6 && p[5] == 4:
		f.src, f.dst = netip.AddrFrom4([4]byte(p[14:])), netip.AddrFrom4([4]byte(p[24:]))
	}
	return f
}

func (f *facts) examine4(p []byte) {
	f.src, f.dst = netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
	f.proto = int(p[9])
	header := int(p[0]&15) * 4
	if binary.BigEndian.Uint16(p[6:])&0x1fff == 0 && header >= 20 && len(p) > header {
		f.examinePorts(p[header:])
	}
}

func (f *facts) examine6(p []byte) {
	f.src, f.dst = netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:]))
	next := int(p[6])
	p = p[40:]
	for range 9 {
		length := 0
		switch next {
		default:
			f.proto = next
			f.examinePorts(p)
			return
		case 0, 43, 60, 51, 44:
			if len(p) < 8 {
				return
			}
			length = 8 * (int(p[1]) + 1)
		}
		if next == 51 {
			length = 4 * (int(p[1]) + 2)
		}
		was := next
		next = int(p[0])
		if was == 44 {
			length = 8
			if binary.BigEndian.Uint16(p[2:])>>3 != 0 {
				f.proto = next
				return
			}
		}
		p = p[min(length, len(p)):]
	}
}

func (f *facts) examinePorts(p []byte) {
	if (f.proto == 6 || f.proto == 17 || f.proto == 132) && len(p) >= 4 {
		f.ports = []int{int(binary.BigEndian.Uint16(p)), int(binary.BigEndian.Uint16(p[2:]))}
	}
}

// matches evaluates an expression as Expr.String prints it.
func (f *facts) matches(text string) bool {
	e := evaluator{f, strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(text))}
	if len(e.words) == 0 {
		return true
	}
	result := e.chain()
	if len(e.words) != 0 {
		panic(fmt.Sprintf("%q is not a printed expression: %q is left", text, e.words))
	}
	return result
}

type evaluator struct {
	*facts
	words []string
}

func (e *evaluator) next() string {
	w := e.words[0]
	e.words = e.words[1:]
	return w
}

func (e *evaluator) follows(words ...string) bool {
	for _, w := range words {
		if len(e.words) > 0 && e.words[0] == w {
			return true
		}
	}
	return false
}

// chain is terms joined by one kind of operator: mixtures are printed in
// parentheses.
func (e *evaluator) chain() bool {
	result := e.term()
	for e.follows("and", "or") {
		if e.next() == "and" {
			result = e.term() && result
		} else {
			result = e.term() || result
		}
	}
	return result
}

func (e *evaluator) term() bool {
	switch {
	case e.follows("not"):
		e.next()
		return !e.term()
	case e.follows("("):
		e.next()
		result := e.chain()
		e.next()
		return result
	}
	return e.test()
}

// test evaluates one primitive: perhaps a protocol, perhaps a direction, and
// what is asked.
func (e *evaluator) test() bool {
	proto := ""
	if e.follows("ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "ether", "vlan") {
		proto = e.next()
	}
	ends := []bool{true, true}
	if e.follows("src", "dst") {
		src := e.next() == "src"
		ends = []bool{src, !src}
	}
	if !e.follows("host", "net", "port", "portrange", "proto", "multicast") {
		return e.alone(proto)
	}
	switch what := e.next(); what {
	case "multicast":
		return e.multicast(proto)
	case "proto":
		return e.number(proto)
	case "port", "portrange":
		return e.port(ends) && (proto == "" || e.proto == numbers[proto])
	default:
		return e.address(proto, ends)
	}
}

var numbers = map[string]int{
	"ip": 0x0800, "ip6": 0x86dd, "arp": 0x0806, "rarp": 0x8035,
	"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "igmp": 2, "icmp6": 58,
}

func (e *evaluator) alone(proto string) bool {
	switch proto {
	case "ip", "ip6", "arp", "rarp":
		return e.ethertype == numbers[proto]
	case "icmp", "igmp":
		return e.ethertype == 0x0800 && e.proto == numbers[proto]
	case "icmp6":
		return e.ethertype == 0x86dd && e.proto == 58
	case "vlan":
		return e.tagged()
	}
	return e.proto == numbers[proto]
}

func (e *evaluator) tagged() bool {
	if len(e.words) == 0 || e.follows("and", "or", ")") {
		return len(e.tags) > 0
	}
	want, _ := strconv.Atoi(e.next())
	for _, tag := range e.tags {
		if tag == want {
			return true
		}
	}
	return false
}

func (e *evaluator) number(proto string) bool {
	want, err := strconv.ParseInt(e.next(), 0, 32)
	if err != nil {
		panic(err)
	}
	switch proto {
	case "ether":
		return e.ethertype == int(want)
	case "":
		return e.proto == int(want)
	}
	return e.ethertype == numbers[proto] && e.proto == int(want)
}

func (e *evaluator) port(ends []bool) bool {
	low, high, ranged := strings.Cut(e.next(), "-")
	from, _ := strconv.Atoi(low)
	to := from
	if ranged {
		to, _ = strconv.Atoi(high)
	}
	for i, p := range e.ports {
		if ends[i] && from <= p && p <= to {
			return true
		}
	}
	return false
}

func (e *evaluator) address(proto string, ends []bool) bool {
	text := e.next()
	if proto == "ether" {
		mac, _ := net.ParseMAC(text)
		return ends[0] && bytes.Equal(mac, e.srcMAC) || ends[1] && bytes.Equal(mac, e.dstMAC)
	}
	if !strings.Contains(text, "/") {
		text += map[bool]string{true: "/128", false: "/32"}[strings.Contains(text, ":")]
	}
	prefix := netip.MustParsePrefix(text)
	return ends[0] && within(prefix, e.src) || ends[1] && within(prefix, e.dst)
}

// within compares bit by bit.
func within(prefix netip.Prefix, addr netip.Addr) bool {
	if !addr.IsValid() || addr.Is4() != prefix.Addr().Is4() {
		return false
	}
	a, b := addr.AsSlice(), prefix.Addr().AsSlice()
	for i := range prefix.Bits() {
		if (a[i/8]^b[i/8])>>(7-i%8)&1 != 0 {
			return false
		}
	}
	return true
}

func (e *evaluator) multicast(proto string) bool {
	switch proto {
	case "ip":
		return e.ethertype == 0x0800 && e.dst.IsValid() && e.dst.As4()[0] >= 224
	case "ip6":
		return e.ethertype == 0x86dd && e.dst.IsValid() && e.dst.As16()[0] == 0xff
	}
	return e.dstMAC[0]&1 == 1
}
