package stage

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// FuzzApply: whatever the bytes are, a chain changes only the headers and the places of numbers, and keeps
// the sums that checksums are made of.
func FuzzApply(f *testing.F) {
	f.Add(udp4(f), uint16(3))
	f.Add(udp6(f), uint16(0))
	f.Add(insert(udp4(f), 12, 0x81, 0, 0xf0, 1), uint16(7))
	f.Add(with(insert(with(udp6(f), 18, 0, 32), 54, 17, 0, 0, 1, 0, 0, 0, 0), 20, 44), uint16(8))
	f.Add(with(insert(udp4(f), 34, 1, 131, 3, 4), 14, 0x46), uint16(1))
	tcp := fields{tags: 2, macs: someMACs, ips: [2]netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("::2")}, options: 2, proto: layers.IPProtocolTCP}
	f.Add(tcp.build(f), uint16(0))
	f.Fuzz(func(t *testing.T, p []byte, offset uint16) {
		at := min(int(offset), maxOffset)
		c := mustChain(t,
			Step{Set: &Set{MACSource: someMACs[0], VLAN: 77, IPSource: netip.MustParseAddr("10.1.2.3"), IPDestination: netip.MustParseAddr("255.1.255.3"), PortSource: 7}},
			Step{Set: &Set{IPSource: netip.MustParseAddr("2001:db8::ffff:1"), IPDestination: netip.MustParseAddr("fe80::2"), PortDestination: 8}},
			Step{Timestamp: &Timestamp{Offset: at}}, Step{Sequence: &Sequence{Offset: at}})
		got := bytes.Clone(p)
		c.Apply(got, 0x123456789abcdef)
		checkSums(t, p, got)
		for i := range p {
			if p[i] != got[i] && !mayChange(p, i, at) {
				t.Fatalf("byte %d changed:\n%x\n%x", i, p, got)
			}
		}
	})
}

// mayChange reports whether a byte belongs to a field that is set, or to a checksum.
func mayChange(p []byte, i, offset int) bool {
	v := look(p)
	in := func(at, n int) bool { return at > 0 && i >= at && i < at+n }
	header, sums := 8, v.transport+8+offset
	if v.v6 {
		header = 32
	}
	return i < 12 || in(v.tag, 2) || !v.v6 && in(v.ip, 20) && (in(v.ip+10, 2) || in(v.ip+12, header)) || v.v6 && in(v.ip+8, header) ||
		in(v.transport, 4) || in(v.field, 2) || v.transport > 0 && in(sums, 8)
}

// checkSums checks that each checksum, added to the data that it covers, has the same sum as before, whether
// it was right or wrong.
func checkSums(t *testing.T, before, after []byte) {
	t.Helper()
	v := look(before)
	if v.network != Changed || v.carried != Changed || look(after) != v {
		if look(after) != v {
			t.Fatalf("headers moved: %+v, %+v", v, look(after))
		}
		return
	}
	if !v.v6 && same(total(before[v.ip:v.ip+20])) != same(total(after[v.ip:v.ip+20])) {
		t.Fatalf("IPv4's checksum:\n%x\n%x", before, after)
	}
	if v.field == 0 {
		return
	}
	if sum := be.Uint16(before[v.field:]); v.proto == protoUDP && sum == 0 {
		if be.Uint16(after[v.field:]) != 0 {
			t.Fatalf("a checksum where there was none:\n%x\n%x", before, after)
		}
		return
	}
	if a, b := covered(before, &v), covered(after, &v); same(a) != same(b) {
		t.Fatalf("the checksum at %d, %d and %d:\n%x\n%x", v.field, a, b, before, after)
	}
}

// covered is the sum of addresses, transport header and payload, as far as p has them.
func covered(p []byte, v *view) uint16 {
	addresses := p[v.ip+12 : v.ip+20]
	if v.v6 {
		addresses = p[v.ip+8 : v.ip+40]
	}
	return total(append(bytes.Clone(addresses), p[v.transport:]...))
}

// same maps the two forms of zero to one.
func same(sum uint16) uint16 {
	if sum == 0xffff {
		return 0
	}
	return sum
}
