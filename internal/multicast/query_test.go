package multicast

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// query4 is a general query of IGMP with this message, from 10.0.0.1.
func query4(message ...byte) []byte {
	p := []byte{0x46, 0xc0, 0, 0, 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 1, 0x94, 4, 0, 0}
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)+len(message)))
	return append(p, message...)
}

// query6 is a query of MLD with this many bytes, from fe80::1.
func query6(length int) []byte {
	p := make([]byte, 48+length)
	p[0], p[5], p[6], p[7] = 0x60, byte(8+length), 0, 1
	copy(p[8:], netip.MustParseAddr("fe80::1").AsSlice())
	copy(p[24:], netip.MustParseAddr("ff02::1").AsSlice())
	copy(p[40:], []byte{58, 0, 5, 2, 0, 0, 1, 0, 130})
	return p
}

// TestParseQuery: queries of each version are told apart, and other packets and cut ones are none.
func TestParseQuery(t *testing.T) {
	for _, c := range []struct {
		p    []byte
		want string
	}{
		{query4(0x11, 0, 0, 0, 0, 0, 0, 0), "IGMPv1"},
		{query4(0x11, 100, 0, 0, 0, 0, 0, 0), "IGMPv2"},
		{query4(0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0), "IGMPv3"},
		{query4(0x22, 0, 0, 0, 0, 0, 0, 0), ""},
		{query4(0x11, 0, 0, 0, 0, 0, 0), ""},
		{query6(24), "MLDv1"},
		{query6(28), "MLDv2"},
		{query6(23), ""},
	} {
		q, is := parseQuery(append(c.p, make([]byte, 14)...)) // as Ethernet pads it
		if q.Protocol != c.want || is != (c.want != "") || is && q.Address != netip.MustParseAddr("10.0.0.1") && q.Address != netip.MustParseAddr("fe80::1") {
			t.Errorf("%x is %q of %s, want %q", c.p, q.Protocol, q.Address, c.want)
		}
		for n := range c.p {
			if q, is := parseQuery(c.p[:n]); is {
				t.Errorf("%d bytes of %x are %+v", n, c.p, q)
			}
		}
	}
	later := query4(0x11, 100, 0, 0, 0, 0, 0, 0)
	later[7] = 5 // of a fragment
	if _, is := parseQuery(later); is {
		t.Error("a later fragment is a query")
	}
}

// FuzzParseQuery: no packet is read beyond its end.
func FuzzParseQuery(f *testing.F) {
	f.Add(query4(0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0))
	f.Add(query6(28))
	f.Fuzz(func(t *testing.T, p []byte) {
		if q, is := parseQuery(p); is && (!q.Address.IsValid() || q.Protocol == "") {
			t.Errorf("%x is %+v", p, q)
		}
	})
}
