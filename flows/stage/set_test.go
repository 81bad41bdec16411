package stage

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"
)

var every = []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolICMPv6, 200}

func mustChain(t tester, steps ...Step) *Chain {
	t.Helper()
	c, err := New(steps)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// drawSet draws a Set for packets of one version of IP.
func drawSet(t *rapid.T, v4 bool) *Set {
	s := &Set{
		VLAN:       rapid.IntRange(0, maxVLAN).Draw(t, "set vlan"),
		PortSource: rapid.IntRange(0, maxPort).Draw(t, "set source"), PortDestination: rapid.IntRange(0, maxPort).Draw(t, "set destination"),
		MACSource: drawMAC(t), IPSource: drawIP(t, v4), IPDestination: drawIP(t, v4), MACDestination: drawMAC(t),
	}
	for i, clear := range []func(){
		func() { s.MACDestination = nil }, func() { s.IPSource = netip.Addr{} }, func() { s.IPDestination = netip.Addr{} },
	} {
		if rapid.Bool().Draw(t, []string{"no mac", "no source", "no destination"}[i]) {
			clear()
		}
	}
	return s
}

// with returns the fields after a Set.
func (f fields) with(s *Set) *fields {
	for i, mac := range []net.HardwareAddr{s.MACSource, s.MACDestination} {
		if mac != nil {
			f.macs[i] = mac
		}
	}
	for i, ip := range []netip.Addr{s.IPSource, s.IPDestination} {
		if ip.IsValid() && ip.Is4() == f.ips[0].Is4() {
			f.ips[i] = ip
		}
	}
	for i, port := range []int{s.PortSource, s.PortDestination} {
		if port != 0 {
			f.ports[i] = uint16(port)
		}
	}
	if s.VLAN != 0 {
		f.vlan = s.VLAN
	}
	return &f
}

// TestSetAgainstGopacket: a packet after a Set is byte for byte the packet that gopacket builds with these
// fields, with all checksums computed again.
func TestSetAgainstGopacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFields(t, every...)
		f.noChecksum = rapid.IntRange(0, 3).Draw(t, "no checksum") == 0
		s := drawSet(t, f.ips[0].Is4())
		c := mustChain(t, Step{Set: s})
		got := f.build(t)
		c.Apply(got, 0)
		if diff := cmp.Diff(f.with(s).build(t), got); diff != "" {
			t.Fatalf("%+v set in %+v (-want +got):\n%s", *s, *f, diff)
		}
	})
}

// TestStampAgainstGopacket: a packet with numbers in its payload, also at odd offsets, is the packet that
// gopacket builds.
func TestStampAgainstGopacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFields(t, layers.IPProtocolUDP)
		f.payload = append(f.payload, make([]byte, 16)...)
		at := rapid.IntRange(0, len(f.payload)-16).Draw(t, "at")
		now := rapid.Uint64().Draw(t, "now")
		c := mustChain(t, Step{Timestamp: &Timestamp{Offset: at}}, Step{Sequence: &Sequence{Offset: at + 8}})
		for n := range uint64(3) {
			got := f.build(t)
			c.Apply(got, now)
			want := *f
			want.payload = bytes.Clone(f.payload)
			binary.BigEndian.PutUint64(want.payload[at:], now)
			binary.BigEndian.PutUint64(want.payload[at+8:], n+1)
			if diff := cmp.Diff(want.build(t), got); diff != "" {
				t.Fatalf("%+v at %d (-want +got):\n%s", *f, at, diff)
			}
		}
	})
}

// TestAllOnes: a UDP checksum that comes out as 0 is written as all ones, since 0 means that there is none.
func TestAllOnes(t *testing.T) {
	f := &fields{ips: [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, proto: layers.IPProtocolUDP, macs: someMACs, ports: [2]uint16{1, 2}}
	found := 0
	for port := 1; port <= maxPort; port++ {
		f.ports[0] = 1
		c := mustChain(t, Step{Set: &Set{PortSource: port}})
		got := f.build(t)
		c.Apply(got, 0)
		switch sum := be.Uint16(got[look(got).field:]); sum {
		case 0:
			t.Fatalf("port %d: the checksum is 0", port)
		case 0xffff:
			found++
			f.ports[0] = uint16(port)
			if diff := cmp.Diff(f.build(t), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			mustChain(t, Step{Set: &Set{PortSource: 1}}).Apply(got, 0)
			f.ports[0] = 1
			if diff := cmp.Diff(f.build(t), got); diff != "" {
				t.Errorf("set back (-want +got):\n%s", diff)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d ports have a checksum of all ones", found)
	}
}

var someMACs = [2]net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}

// cut makes fragments of an IPv4 packet without options or tags.
func cut(p []byte, at int) (first, later []byte) {
	first, later = bytes.Clone(p[:34+at]), append(bytes.Clone(p[:34]), p[34+at:]...)
	be.PutUint16(first[20:], 0x2000)
	be.PutUint16(later[20:], uint16(at/8))
	for _, f := range [][]byte{first, later} {
		be.PutUint16(f[16:], uint16(len(f)-14))
		be.PutUint16(f[24:], 0)
		be.PutUint16(f[24:], ^total(f[14:34]))
	}
	return first, later
}

// total returns the sum of 16-bit words, computed the plain way. A checksum is its complement (RFC 1071).
func total(b []byte) uint16 {
	var sum uint64
	for i, c := range b {
		if i%2 == 0 {
			sum += uint64(c) << 8
		} else {
			sum += uint64(c)
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// TestFragments: setting fields in both fragments of a packet gives the fragments of the packet with these
// fields.
func TestFragments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFields(t, layers.IPProtocolTCP, layers.IPProtocolUDP)
		f.tags, f.options, f.ips = 0, 0, [2]netip.Addr{drawIP(t, true), drawIP(t, true)}
		f.payload = append(f.payload, make([]byte, 30)...)
		s := drawSet(t, true)
		s.IPSource, s.PortSource = drawIP(t, true), 77
		first, later := cut(f.build(t), 24)
		wantFirst, wantLater := cut(f.with(s).build(t), 24)
		c := mustChain(t, Step{Set: s})
		c.Apply(first, 0)
		c.Apply(later, 0)
		if diff := cmp.Diff([][]byte{wantFirst, wantLater}, [][]byte{first, later}); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if st := c.Stats()[0]; st.Changed != 2 || st.Left["later_fragment"] != 1 {
			t.Errorf("counted %+v", st)
		}
	})
}

// TestCutOff: a packet that ends within its headers is not touched. A packet that ends later is changed.
func TestCutOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFields(t, layers.IPProtocolTCP, layers.IPProtocolUDP)
		s := drawSet(t, f.ips[0].Is4())
		s.PortSource = 5
		whole := f.build(t)
		v := look(whole)
		n := rapid.IntRange(0, len(whole)).Draw(t, "bytes")
		got := bytes.Clone(whole[:n])
		c := mustChain(t, Step{Set: s})
		c.Apply(got, 0)
		want := f.with(s).build(t)[:n]
		if n < v.transport+needs(v.proto, v.v6) {
			want = whole[:n]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%d of %d bytes (-want +got):\n%s", n, len(whole), diff)
		}
		if st := c.Stats()[0]; (st.Left["truncated"] == 1) != (n < v.transport+needs(v.proto, v.v6)) {
			t.Errorf("counted %+v", st)
		}
	})
}
