package tcpsend

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// reference is the checksum of RFC 1071 as that document has it.
func reference(b []byte) uint16 {
	s := uint32(0)
	for i, c := range b {
		if i%2 == 0 {
			s += uint32(c) << 8
		} else {
			s += uint32(c)
		}
		s = s>>16 + s&0xffff
	}
	return uint16(s>>16 + s&0xffff)
}

// FuzzSum: the sum of any bytes is that of the reference.
func FuzzSum(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("an order of some bytes"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, want := fold(sum(b)), reference(b)
		if got != want && !(got == 0xffff && want == 0 || got == 0 && want == 0xffff) {
			t.Errorf("sum of % x is %04x, want %04x", b, got, want)
		}
	})
}

// TestHeaders: fields are where RFC 791, 8200, 9293 and 7323 have them, the tag is in place, and both checksums are right.
func TestHeaders(t *testing.T) {
	path := Path{Source: [6]byte{2, 0, 0, 0, 0, 1}, Destination: [6]byte{2, 0, 0, 0, 0, 2}, HopLimit: 61}
	for _, c := range []struct {
		local, remote string
		tag, stamps   bool
		payload       string
	}{
		{"10.0.0.1:1000", "10.0.0.2:2000", false, true, "an order"},
		{"10.0.0.1:1000", "10.0.0.2:2000", true, false, "odd"},
		{"[fd00::1]:1000", "[fd00::2]:2000", false, true, "an order"},
		{"[fd00::1]:1000", "[fd00::2]:2000", true, true, "x"},
	} {
		p := path
		ether := 14
		if c.tag {
			p.Tags[0] = Tag{Protocol: 0x8100, Control: 0x6064}
			ether += 4
		}
		var h template
		local, remote := netip.MustParseAddrPort(c.local), netip.MustParseAddrPort(c.remote)
		h.make(&p, local, remote, c.stamps, 0xb8)
		b := append(make([]byte, Headroom), c.payload...)
		for i := range b[:Headroom] {
			b[i] = 0xee // an earlier segment
		}
		f := fields{sequence: 0x01020304, acknowledgement: 0x05060708, window: 0x0910, stamp: 0x11121314, echo: 0x15161718, id: 0x1920}
		s := b[h.write(b, &f):]
		if string(s[:6]) != string(p.Destination[:]) || string(s[6:12]) != string(p.Source[:]) {
			t.Errorf("%+v: addresses % x", c, s[:12])
		}
		if c.tag && binary.BigEndian.Uint32(s[12:]) != 0x81006064 {
			t.Errorf("%+v: tag % x", c, s[12:16])
		}
		ip := s[ether:]
		var tcp, pseudo []byte
		if local.Addr().Is4() {
			tcp = ip[20:]
			if binary.BigEndian.Uint16(s[ether-2:]) != 0x0800 || ip[0] != 0x45 || ip[1] != 0xb8 || int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || ip[8] != 61 || ip[9] != 6 || reference(ip[:20]) != 0xffff {
				t.Errorf("%+v: IP header % x", c, ip[:20])
			}
			pseudo = append(append([]byte{}, ip[12:20]...), 0, 6, byte(len(tcp)>>8), byte(len(tcp)))
		} else {
			tcp = ip[40:]
			if binary.BigEndian.Uint16(s[ether-2:]) != 0x86dd || ip[0] != 0x6b || ip[1] != 0x80 || int(binary.BigEndian.Uint16(ip[4:])) != len(tcp) || ip[6] != 6 || ip[7] != 61 {
				t.Errorf("%+v: IP header % x", c, ip[:40])
			}
			pseudo = append(append([]byte{}, ip[8:40]...), 0, 0, byte(len(tcp)>>8), byte(len(tcp)), 0, 0, 0, 6)
		}
		if got := reference(append(pseudo, tcp...)); got != 0xffff {
			t.Errorf("%+v: the checksum makes %04x", c, got)
		}
		want := "\x03\xe8\x07\xd0\x01\x02\x03\x04\x05\x06\x07\x08"
		length := 20
		if c.stamps {
			length = 32
			if string(tcp[20:32]) != "\x01\x01\x08\x0a\x11\x12\x13\x14\x15\x16\x17\x18" {
				t.Errorf("%+v: options % x", c, tcp[20:32])
			}
		}
		if string(tcp[:12]) != want || int(tcp[12]>>4)*4 != length || tcp[13] != 0x18 || string(tcp[14:16]) != "\x09\x10" || string(tcp[length:]) != c.payload {
			t.Errorf("%+v: segment % x", c, tcp)
		}
	}
}
