package wire

import (
	"bytes"
	"testing"
)

// seedPackets returns a packet of each opcode, and the packets that TestParseRefuses begins with.
func seedPackets(f *testing.F) (frames [][]byte) {
	seen := map[byte]bool{}
	for _, name := range []string{"testdata/two-hosts.pcap", "testdata/opcodes.pcap"} {
		for _, frame := range readPcap(f, name) {
			var e Envelope
			if e.Parse(frame, len(frame)) == WellFormed && len(frame) < 400 && !seen[frame[e.Transport]] {
				seen[frame[e.Transport]] = true
				frames = append(frames, frame)
			}
		}
	}
	return append(frames, sample(f, false, 2), sample(f, true, 2), nil)
}

// FuzzDecode: for any bytes, Encode writes a decoded header unchanged, and the payload lies within
// the packet.
func FuzzDecode(f *testing.F) {
	for _, frame := range seedPackets(f) {
		var e Envelope
		e.Parse(frame, len(frame))
		f.Add(frame[e.Transport:], 256)
	}
	f.Fuzz(func(t *testing.T, b []byte, mtu int) {
		if !checkHeader(t, b) {
			return
		}
		var h Header
		headers, _ := h.Decode(b)
		n, m := h.PayloadLen(len(b))
		if m != WellFormed {
			if n != 0 {
				t.Fatalf("%v with %d bytes", m, n)
			}
			return
		}
		if headers+n+int(h.Pad)+ICRCBytes != len(b) || n < 0 {
			t.Fatalf("headers %d, payload %d, padding %d of %d bytes", headers, n, h.Pad, len(b))
		}
		if CheckPayload(h.Opcode, n, mtu) == WellFormed && h.Opcode != CNP && n > mtu && n > 0 {
			t.Fatalf("%d bytes of payload with an MTU of %d", n, mtu)
		}
	})
}

// FuzzParse: for any frame, the parsed parts lie within it, and a template of its path writes the
// same envelope.
func FuzzParse(f *testing.F) {
	for _, frame := range seedPackets(f) {
		f.Add(frame, 0, true)
	}
	f.Fuzz(func(t *testing.T, frame []byte, more int, checksum bool) {
		frame = bytes.Clone(frame)
		if checksum && len(frame) >= udp4 {
			mend(frame)
		}
		more = min(max(more, 0), 1<<16)
		var e Envelope
		if m := e.Parse(frame, len(frame)+more); m != WellFormed {
			return
		}
		if e.Transport > len(frame) || e.Transport+e.Length > len(frame)+more || e.Length < minTransport || e.Network >= e.Transport {
			t.Fatalf("%+v in %d bytes of %d", e, len(frame), len(frame)+more)
		}
		checkTemplate(t, &e, frame)
		if end := e.Transport + e.Length; end <= len(frame) {
			checkTrailer(t, frame[e.Network:end])
		}
	})
}

// FuzzReader: for a packet that differs from the one before in some bytes, a Reader returns the
// same as Envelope.
func FuzzReader(f *testing.F) {
	for _, frame := range seedPackets(f) {
		for _, at := range []uint16{0, 13, 15, 17, 23, 25, 30, 35, 37, 39} {
			f.Add(frame, frame, at, byte(1), true)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte, at uint16, change byte, checksum bool) {
		first, second = bytes.Clone(first), bytes.Clone(second)
		if len(second) > 0 {
			second[int(at)%len(second)] ^= change
		}
		for _, frame := range [][]byte{first, second} {
			if checksum && len(frame) >= udp4 {
				mend(frame)
			}
		}
		var r Reader
		r.Parse(first, len(first))
		var e Envelope
		m := e.Parse(second, len(second))
		if got := r.Parse(second, len(second)); got != m || m == WellFormed && r.Envelope != e {
			t.Fatalf("%v, %+v, want %v, %+v", got, r.Envelope, m, e)
		}
	})
}

// checkTemplate compares a written envelope with a parsed one, except for the parts that a receiver
// ignores: reserved flags, checksums of UDP, bytes between IP's length and UDP's.
func checkTemplate(t *testing.T, e *Envelope, frame []byte) {
	p := Path{e.Source, e.Destination, e.SourceMAC, e.DestinationMAC, e.Tags, e.SourcePort, e.TrafficClass, e.HopLimit, e.FlowLabel}
	template, err := NewTemplate(&p)
	if err != nil {
		return // a source port that NewTemplate refuses
	}
	var b [MaxEnvelopeBytes + minTransport]byte
	n := template.Put(b[:], be.Uint16(frame[e.Network+4:]), e.Length)
	var again Envelope
	if m := again.Parse(b[:], n+e.Length); m != WellFormed || again != *e || n != e.Transport {
		t.Fatalf("%v, %+v, was %+v", m, again, *e)
	}
}

// checkTrailer corrects the ICRC, and compares it with the plain computation.
func checkTrailer(t *testing.T, packet []byte) {
	n := len(packet) - ICRCBytes
	Begin(packet[:n]).Finish(packet[n:], 0)
	if !Check(packet) || le.Uint32(packet[n:]) != plain(packet[:n]) {
		t.Fatalf("ICRC %x of %x", packet[n:], packet[:n])
	}
}
