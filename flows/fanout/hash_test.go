package fanout

import (
	"bytes"
	"net/netip"
	"testing"
)

// tuple describes a packet.
type tuple struct {
	from, to         string
	fromPort, toPort uint16
	proto            byte
	tags             int
	options          bool // an IPv4 option, or an extension header of IPv6
	fragment         bool
}

func (p tuple) back() tuple {
	p.from, p.to, p.fromPort, p.toPort = p.to, p.from, p.toPort, p.fromPort
	return p
}

// packetOf returns an Ethernet frame with a few bytes of payload.
func packetOf(p tuple) []byte {
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for range p.tags {
		b = append(b, 0x81, 0, 0, 7)
	}
	from, to := netip.MustParseAddr(p.from), netip.MustParseAddr(p.to)
	if from.Is4() {
		b = append(b, 8, 0)
		b = append(b, ipv4Of(p, from, to)...)
	} else {
		b = append(b, 0x86, 0xdd)
		b = append(b, ipv6Of(p, from, to)...)
	}
	b = be.AppendUint16(b, p.fromPort)
	b = be.AppendUint16(b, p.toPort)
	return append(b, "and so on, as it may be"...)
}

func ipv4Of(p tuple, from, to netip.Addr) []byte {
	h := make([]byte, 20)
	h[0], h[9] = 0x45, p.proto
	copy(h[12:], from.AsSlice())
	copy(h[16:], to.AsSlice())
	if p.options {
		h[0] = 0x46
		h = append(h, 1, 1, 1, 0)
	}
	if p.fragment {
		h[6] = 0x20
	}
	return h
}

func ipv6Of(p tuple, from, to netip.Addr) []byte {
	h := make([]byte, 40)
	h[0], h[6] = 0x60, p.proto
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	if p.fragment {
		h = append(h, h[6], 0, 0, 1, 0, 0, 0, 9)
		h[6] = 44
	}
	if p.options {
		h = append(h[:40:40], append([]byte{h[6], 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, h[40:]...)...)
		h[6] = 60
	}
	return h
}

// TestFlowHash: both directions of a connection have the same hash; addresses, ports and protocol
// change it; VLAN tags and options do not.
func TestFlowHash(t *testing.T) {
	for _, p := range []tuple{
		{from: "10.0.0.1", to: "10.0.0.2", fromPort: 1000, toPort: 80, proto: protocolTCP},
		{from: "fd00::1", to: "fd00::2", fromPort: 1000, toPort: 80, proto: protocolUDP},
	} {
		h := flowHash(packetOf(p))
		same := map[string]tuple{"back": p.back(), "tags": p, "options": p, "four tags": p}
		change := func(name string, f func(*tuple)) { one := same[name]; f(&one); same[name] = one }
		change("tags", func(p *tuple) { p.tags = 1 })
		change("four tags", func(p *tuple) { p.tags = 4 })
		change("options", func(p *tuple) { p.options = true })
		for name, one := range same {
			if flowHash(packetOf(one)) != h || h == 0 {
				t.Errorf("%v: %s is %x and not %x", p, name, flowHash(packetOf(one)), h)
			}
		}
		for name, f := range map[string]func(*tuple){
			"port": func(p *tuple) { p.toPort++ }, "protocol": func(p *tuple) { p.proto ^= protocolTCP ^ protocolUDP },
			"ends swap ports": func(p *tuple) { p.fromPort, p.toPort = p.toPort, p.fromPort },
			"fragment":        func(p *tuple) { p.fragment = true },
		} {
			other := p
			f(&other)
			if flowHash(packetOf(other)) == h {
				t.Errorf("%v: another %s is the same", p, name)
			}
		}
		first, second := p, p
		first.fragment, second.fragment, second.fromPort = true, true, 7
		if flowHash(packetOf(first)) != flowHash(packetOf(second)) {
			t.Errorf("%v: fragments are not the same", p)
		}
	}
}

// TestFlowHashSpreads: connections with neighbouring ports spread evenly over the peers.
func TestFlowHashSpreads(t *testing.T) {
	var of [4]int
	for port := range uint16(4000) {
		h := flowHash(packetOf(tuple{from: "10.0.0.1", to: "10.0.0.2", fromPort: port, toPort: 80, proto: protocolTCP}))
		of[uint64(h)*4>>32]++
	}
	for _, n := range of {
		if n < 900 || n > 1100 {
			t.Errorf("of 4000 connections the peers get %v", of)
		}
	}
}

// FuzzFlowHash: flowHash reads no bytes outside the packet, and bytes after the headers do not
// change the hash.
func FuzzFlowHash(f *testing.F) {
	for _, p := range []tuple{
		{from: "10.0.0.1", to: "10.0.0.2", proto: protocolTCP, tags: 2, options: true}, {from: "fd00::1", to: "fd00::2", proto: protocolUDP, options: true, fragment: true},
	} {
		b := packetOf(p)
		for n := range len(b) {
			f.Add(b[:n])
		}
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		b := bytes.Clone(packet) // with no capacity after it
		h := flowHash(b[:len(b):len(b)])
		if kind, _ := networkHeader(b); kind != typeIPv4 && kind != typeIPv6 && h != 0 {
			t.Errorf("what is no IP packet is %x", h)
		}
	})
}
