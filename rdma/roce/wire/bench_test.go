package wire

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// benchPath returns a path of the IP version, between addresses that are reserved for
// documentation.
func benchPath(ipv6 bool) *Path {
	source, destination := "192.0.2.1", "192.0.2.2"
	if ipv6 {
		source, destination = "2001:db8::1", "2001:db8::2"
	}
	return &Path{
		Source: rdma.GIDOf(netip.MustParseAddr(source)), Destination: rdma.GIDOf(netip.MustParseAddr(destination)),
		SourceMAC: [6]byte{2, 0, 0, 0, 0, 1}, DestinationMAC: [6]byte{2, 0, 0, 0, 0, 2},
		SourcePort: SourcePort(0, 17, 18), TrafficClass: ECT0, HopLimit: 64,
	}
}

func benchTemplate(tb testing.TB, ipv6 bool) *Template {
	t, err := NewTemplate(benchPath(ipv6))
	testenv.Must(tb, err)
	return &t
}

// send writes a packet with the opcode and PSN of h and the payload, as a transport does.
func send(frame []byte, t *Template, id uint16, h *Header, payload []byte) int {
	h.Pad = Pad(len(payload))
	n := t.Put(frame, id, h.Opcode.HeaderBytes()+len(payload)+int(h.Pad)+ICRCBytes)
	n += h.Encode(frame[n:])
	c := Begin(frame[t.Network():n]).Add(payload)
	n += copy(frame[n:], payload)
	return n + c.Finish(frame[n:], h.Pad)
}

// receive parses, checks and decodes a packet, as a transport does.
func receive(frame []byte, e *Envelope, h *Header, mtu int) Malformed {
	if m := e.Parse(frame, len(frame)); m != WellFormed {
		return m
	}
	if !Check(frame[e.Network : e.Transport+e.Length]) {
		return ICRCWrong
	}
	if _, m := h.Decode(frame[e.Transport:]); m != WellFormed {
		return m
	}
	n, m := h.PayloadLen(e.Length)
	if m != WellFormed {
		return m
	}
	return CheckPayload(h.Opcode, n, mtu)
}

func benchmark(b *testing.B, do func(b *testing.B, t *Template, h *Header, payload []byte)) {
	for _, ipv6 := range []bool{false, true} {
		for _, o := range []Opcode{RCSendOnly, RCWriteOnly} {
			for _, size := range []int{0, 8, 64, 4096} {
				b.Run(fmt.Sprintf("%v/ipv6=%v/%d", o, ipv6, size), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(size))
					do(b, benchTemplate(b, ipv6), &Header{Opcode: o, PKey: DefaultPKey, DestQPN: 17}, make([]byte, size))
				})
			}
		}
	}
}

// BenchmarkSend writes envelope, headers, payload and ICRC. It copies the payload, as a transport
// need not.
func BenchmarkSend(b *testing.B) {
	benchmark(b, func(b *testing.B, t *Template, h *Header, payload []byte) {
		frame := make([]byte, 4400)
		for b.Loop() {
			h.PSN = h.PSN.Add(1)
			send(frame, t, uint16(h.PSN), h, payload)
		}
	})
}

// BenchmarkReceive parses, checks and decodes.
func BenchmarkReceive(b *testing.B) {
	benchmark(b, func(b *testing.B, t *Template, h *Header, payload []byte) {
		frame := make([]byte, 4400)
		frame = frame[:send(frame, t, 1, h, payload)]
		var e Envelope
		for b.Loop() {
			if m := receive(frame, &e, h, 4096); m != WellFormed {
				b.Fatal(m)
			}
		}
	})
}
