package stage

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"
)

// TestUDP: a datagram that gopacket has built is found, whatever is in front of it. With bytes behind the packet, as
// Ethernet adds to short ones, its payload does not become longer. Of a packet that is cut off there is none.
func TestUDP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFields(t, layers.IPProtocolUDP)
		packet := f.build(t)
		whole := look(packet).end // without what fills a short frame
		for _, p := range [][]byte{packet, append(bytes.Clone(packet), make([]byte, 18)...)} {
			d, why := UDP(p)
			if why != Changed || !bytes.Equal(d.Payload, f.payload) || cap(d.Payload) != len(d.Payload) || d.Destination != f.ips[1] || d.Port != f.ports[1] {
				t.Fatalf("%x of %+v: %+v, %v", p, f, d, why)
			}
		}
		cut := rapid.IntRange(0, whole-1).Draw(t, "cut")
		if d, why := UDP(packet[:cut]); why == Changed || d.Payload != nil {
			t.Fatalf("%d of %d bytes: %+v", cut, whole, d)
		}
	})
}

// TestNoDatagram: packets that are no whole datagrams, or contradict themselves, give none, with the reason.
func TestNoDatagram(t *testing.T) {
	four := udp4(t)
	tcp := fields{macs: someMACs, ips: [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, proto: layers.IPProtocolTCP}
	for name, c := range map[string]struct {
		packet []byte
		want   Reason
	}{
		"TCP":                   {tcp.build(t), NotUDP},
		"no IP":                 {with(udp4(t), 12, 0x08, 0x06), NotIP},
		"first fragment":        {with(udp4(t), 20, 0x20, 0), LaterFragment},
		"later fragment":        {with(udp4(t), 20, 0, 9), LaterFragment},
		"length 7":              {with(udp4(t), 38, 0, 7), Malformed},
		"length 0":              {with(udp4(t), 38, 0, 0), Malformed},
		"beyond the IP packet":  {with(udp4(t), 38, 0xff, 0xff), Malformed},
		"the IP packet goes on": {with(udp4(t), 16, 0xff, 0xff), OtherFrame},
		"beyond IPv6":           {with(udp6(t), 58, 0xff, 0xff), Malformed},
		"cut in the payload":    {four[:57], OtherFrame},
		"cut in its header":     {four[:40], Truncated},
		"nothing":               {nil, Truncated},
	} {
		if d, why := UDP(c.packet); why != c.want || d.Payload != nil {
			t.Errorf("%s: %+v, %v, want %v", name, d, why, c.want)
		}
	}
}

// TestUDPAllocates: finding a datagram costs no allocation.
func TestUDPAllocates(t *testing.T) {
	four, six := udp4(t), udp6(t)
	if n := testing.AllocsPerRun(100, func() {
		UDP(four)
		UDP(six)
		UDP(four[:30])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzUDP: whatever the bytes are, a payload is a part of them, and has the length that its header says.
func FuzzUDP(f *testing.F) {
	f.Add(udp4(f))
	f.Add(udp6(f))
	f.Add(insert(udp4(f), 12, 0x81, 0, 0xf0, 1))
	f.Add(with(udp4(f), 38, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, p []byte) {
		before := bytes.Clone(p)
		d, why := UDP(p)
		if why != Changed {
			if d.Payload != nil {
				t.Fatalf("%v, and %x", why, d.Payload)
			}
			return
		}
		v := look(p)
		if length := int(be.Uint16(p[v.transport+4:])); len(d.Payload) != length-8 || !bytes.Equal(d.Payload, p[v.transport+8:v.transport+length]) || !bytes.Equal(p, before) {
			t.Fatalf("%x: the payload is %x", p, d.Payload)
		}
	})
}
