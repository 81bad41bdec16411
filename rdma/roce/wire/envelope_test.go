package wire

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// sample returns a packet of one IP version or the other, with that many tags.
func sample(t testing.TB, ipv6 bool, tags int) []byte {
	path := benchPath(ipv6)
	for i := range tags {
		path.Tags[i] = Tag{0x8100, uint16(i + 1)}
	}
	template, err := NewTemplate(path)
	testenv.Must(t, err)
	frame := make([]byte, 200)
	return frame[:send(frame, &template, 7, &Header{Opcode: RCSendOnly, DestQPN: 17}, []byte("payload"))]
}

// Offsets of the IP and UDP headers of packets without tags.
const (
	ipAt = ethernetBytes
	udp4 = ipAt + ipv4Bytes
	udp6 = ipAt + ipv6Bytes
)

// mend corrects an IPv4 header checksum.
func mend(frame []byte) {
	be.PutUint16(frame[ipAt+10:], 0)
	be.PutUint16(frame[ipAt+10:], ^fold(sum(frame[ipAt:udp4])))
}

func set16(frame []byte, at int, v uint16) { be.PutUint16(frame[at:], v) }

// TestParseRefuses: Parse refuses each kind of invalid packet and returns the reason.
func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		ipv6 bool
		want Malformed
		do   func(b []byte)
	}{
		"ARP":                     {false, NotRoCE, func(b []byte) { set16(b, 12, 0x0806) }},
		"RoCE v1":                 {false, NotRoCE, func(b []byte) { set16(b, 12, 0x8915) }},
		"TCP":                     {false, NotRoCE, func(b []byte) { b[ipAt+9] = 6 }},
		"another port":            {false, NotRoCE, func(b []byte) { set16(b, udp4+2, 4790) }},
		"IPv6 in IPv4's type":     {false, IPVersion, func(b []byte) { b[ipAt] = 0x65 }},
		"options":                 {false, IPOptions, func(b []byte) { b[ipAt] = 0x46 }},
		"a short header":          {false, IPLength, func(b []byte) { b[ipAt] = 0x44 }},
		"more fragments":          {false, IPFragment, func(b []byte) { b[ipAt+6] = 0x20 }},
		"a later fragment":        {false, IPFragment, func(b []byte) { b[ipAt+7] = 1 }},
		"IP beyond the frame":     {false, IPLength, func(b []byte) { set16(b, ipAt+2, uint16(len(b)-ipAt+1)) }},
		"IP without UDP":          {false, IPLength, func(b []byte) { set16(b, ipAt+2, 27) }},
		"UDP beyond IP":           {false, UDPLength, func(b []byte) { set16(b, udp4+4, uint16(len(b)-udp4+1)) }},
		"UDP without a trailer":   {false, UDPLength, func(b []byte) { set16(b, udp4+4, 23) }},
		"UDP length 0":            {false, UDPLength, func(b []byte) { set16(b, udp4+4, 0) }},
		"IPv6: TCP":               {true, NotRoCE, func(b []byte) { b[ipAt+6] = 6 }},
		"IPv6: hop by hop":        {true, IPExtension, func(b []byte) { b[ipAt+6] = 0 }},
		"IPv6: destination":       {true, IPExtension, func(b []byte) { b[ipAt+6] = 60 }},
		"IPv6: fragment":          {true, IPFragment, func(b []byte) { b[ipAt+6] = 44 }},
		"IPv6: version 4":         {true, IPVersion, func(b []byte) { b[ipAt] = 0x45 }},
		"IPv6: beyond the frame":  {true, IPLength, func(b []byte) { set16(b, ipAt+4, uint16(len(b)-udp6+1)) }},
		"IPv6: jumbogram":         {true, IPLength, func(b []byte) { set16(b, ipAt+4, 0) }},
		"IPv6: a mapped source":   {true, IPAddress, func(b []byte) { copy(b[ipAt+8:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff") }},
		"IPv6: a mapped target":   {true, IPAddress, func(b []byte) { copy(b[ipAt+24:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff") }},
		"IPv6: another port":      {true, NotRoCE, func(b []byte) { set16(b, udp6+2, 53) }},
		"IPv6: UDP beyond IPv6's": {true, UDPLength, func(b []byte) { set16(b, udp6+4, uint16(len(b)-udp6+1)) }},
	} {
		frame := sample(t, c.ipv6, 0)
		c.do(frame)
		if !c.ipv6 {
			mend(frame)
		}
		var e Envelope
		if m := e.Parse(frame, len(frame)); m != c.want {
			t.Errorf("%s: %v, want %v", name, m, c.want)
		}
	}
}

// TestParseChecksum: every bit of an IPv4 header is under its checksum.
func TestParseChecksum(t *testing.T) {
	frame := sample(t, false, 0)
	for at := ipAt; at < udp4; at++ {
		for bit := range 8 {
			frame[at] ^= 1 << bit
			if m := new(Envelope).Parse(frame, len(frame)); m == WellFormed {
				t.Errorf("bit %d of byte %d flipped and nobody noticed", bit, at)
			}
			frame[at] ^= 1 << bit
		}
	}
}

// TestParseTags: Parse accepts none, one and two tags, and refuses three.
func TestParseTags(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		for tags := range 3 {
			frame := sample(t, ipv6, tags)
			var e Envelope
			if m := e.Parse(frame, len(frame)); m != WellFormed || e.Network != ethernetBytes+4*tags {
				t.Fatalf("%d tags: %v, IP at %d", tags, m, e.Network)
			}
			for i, tag := range e.Tags {
				if want := (Tag{0x8100, uint16(i + 1)}); i < tags && tag != want || i >= tags && tag != (Tag{}) {
					t.Errorf("tag %d of %d is %v", i, tags, tag)
				}
			}
		}
	}
	frame := sample(t, false, 2)
	three := append(append(append([]byte{}, frame[:12]...), 0x91, 0, 0, 9), frame[12:]...)
	if m := new(Envelope).Parse(three, len(three)); m != VLANDepth {
		t.Errorf("three tags: %v", m)
	}
}

// TestParseCut: Parse refuses a frame that is cut anywhere, and ignores padding after the packet.
func TestParseCut(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		frame := sample(t, ipv6, 1)
		var want Envelope
		if m := want.Parse(frame, len(frame)); m != WellFormed || want.Transport+want.Length != len(frame) {
			t.Fatalf("%v: %d and %d of %d bytes", m, want.Transport, want.Length, len(frame))
		}
		for n := range frame {
			if m := new(Envelope).Parse(frame[:n], n); m == WellFormed || n < want.Transport && m != FrameShort && m != NotRoCE {
				t.Errorf("%d bytes of %d: %v", n, len(frame), m)
			}
		}
		for pad := range 40 {
			var e Envelope
			if m := e.Parse(append(frame[:len(frame):len(frame)], make([]byte, pad)...), len(frame)+pad); m != WellFormed || e != want {
				t.Errorf("%d bytes behind the packet: %v, %+v", pad, m, e)
			}
		}
	}
}

// TestParseFirstBuffer: Parse needs only the first buffer of a packet in several, if it has the
// headers; the length is that of the whole packet.
func TestParseFirstBuffer(t *testing.T) {
	frame := sample(t, false, 0)
	var whole, e Envelope
	whole.Parse(frame, len(frame))
	if m := e.Parse(frame[:whole.Transport], len(frame)); m != WellFormed || e != whole {
		t.Errorf("%v, %+v", m, e)
	}
	if m := e.Parse(frame[:whole.Transport], len(frame)-1); m != IPLength {
		t.Errorf("a byte too short: %v", m)
	}
}

// TestTrafficClass: Parse returns the DSCP, ECN and flow label that the path set.
func TestTrafficClass(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		path := benchPath(ipv6)
		path.TrafficClass, path.FlowLabel = 46<<2|CE, 0xfedcba*btou(ipv6)
		template, err := NewTemplate(path)
		testenv.Must(t, err)
		frame := make([]byte, 100)
		frame = frame[:send(frame, &template, 1, &Header{Opcode: RCSendOnly}, nil)]
		var e Envelope
		if m := e.Parse(frame, len(frame)); m != WellFormed || e.DSCP() != 46 || e.ECN() != CE || e.FlowLabel != 0xedcba*btou(ipv6) || e.HopLimit != 64 {
			t.Errorf("%v, %+v", m, e)
		}
	}
}

func btou(b bool) uint32 { return uint32(btoi(b)) }

func TestTemplateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		want error
		do   func(p *Path)
	}{
		"families":           {errFamilies, func(p *Path) { p.Source = benchPath(true).Source }},
		"port":               {errSourcePort, func(p *Path) { p.SourcePort = 0xbfff }},
		"inner tag alone":    {errTags, func(p *Path) { p.Tags[1].Type = 0x8100 }},
		"tag without a type": {errTags, func(p *Path) { p.Tags[0].TCI = 5 }},
		"another type":       {errTags, func(p *Path) { p.Tags[0].Type = 0x0800 }},
	} {
		path := benchPath(false)
		c.do(path)
		if _, err := NewTemplate(path); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestPutGRH: PutGRH writes forty bytes in front of a datagram, for IPv4 and IPv6.
func TestPutGRH(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		frame := sample(t, ipv6, 1)
		var e Envelope
		if m := e.Parse(frame, len(frame)); m != WellFormed {
			t.Fatal(m)
		}
		grh := [41]byte{0: 0xee, 19: 0xee, 40: 0xee}
		e.PutGRH(grh[:], frame)
		want := [41]byte{40: 0xee}
		if ipv6 {
			copy(want[:40], frame[e.Network:])
		} else {
			copy(want[20:40], frame[e.Network:])
		}
		if grh != want {
			t.Errorf("%x, want %x", grh, want)
		}
	}
}

// TestPutChecksum: the header checksum is right for every identification and many lengths.
func TestPutChecksum(t *testing.T) {
	template := benchTemplate(t, false)
	b := make([]byte, MaxEnvelopeBytes)
	for id := range 1 << 16 {
		template.Put(b, uint16(id), 16+id%4200)
		if fold(sum(b[ipAt:udp4])) != 0xffff {
			t.Fatalf("identification %d: checksum %x", id, b[ipAt+10:][:2])
		}
	}
}
