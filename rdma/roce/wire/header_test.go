package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestHeaderKeepsEveryBit: Encode writes every decoded header unchanged, including reserved bits,
// and changes no byte after it.
func TestHeaderKeepsEveryBit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 256 {
		for range 50 {
			b := make([]byte, MaxHeaderBytes)
			for k := range b {
				b[k] = byte(r.Uint32())
			}
			b[0] = byte(i)
			b[1] &^= versionMask
			checkHeader(t, b)
		}
	}
}

// checkHeader decodes b and encodes it again, and returns whether it was a header.
func checkHeader(t *testing.T, b []byte) bool {
	t.Helper()
	before := Header{Opcode: CNP, PSN: 5}
	h := before
	n, m := h.Decode(b)
	if m != WellFormed {
		if n != 0 || h != before || m >= Reasons {
			t.Fatalf("%v of %x, but %d bytes and %+v", m, b, n, h)
		}
		return false
	}
	if n != Opcode(b[0]).HeaderBytes() {
		t.Fatalf("%d bytes of %x", n, b)
	}
	again := bytes.Repeat([]byte{0xee}, MaxHeaderBytes+4)
	if k := h.Encode(again); k != n || !bytes.Equal(again[:n], b[:n]) {
		t.Fatalf("%x was %x", again[:k], b[:n])
	}
	for _, v := range again[n:] {
		if v != 0xee {
			t.Fatalf("%v wrote behind its %d bytes", h.Opcode, n)
		}
	}
	var twice Header
	if k, m := twice.Decode(again[:n]); k != n || m != WellFormed || twice != h {
		t.Fatalf("%+v was %+v", twice, h)
	}
	return true
}

// TestDecodeRefuses: Decode refuses each opcode at every length that is too short, other versions
// and unknown opcodes.
func TestDecodeRefuses(t *testing.T) {
	b := make([]byte, MaxHeaderBytes)
	for i := range 256 {
		o := Opcode(i)
		b[0], b[1] = byte(i), 0
		for n := range len(b) + 1 {
			want := WellFormed
			switch {
			case n < BTHBytes:
				want = HeaderShort
			case !o.Known():
				want = OpcodeUnknown
			case n < o.HeaderBytes():
				want = HeaderShort
			}
			var h Header
			if k, m := h.Decode(b[:n]); m != want || k != o.HeaderBytes()*btoi(want == WellFormed) {
				t.Errorf("%v in %d bytes: %v, %d", o, n, m, k)
			}
		}
		b[1] = 1
		if _, m := new(Header).Decode(b); m != TransportVersion {
			t.Errorf("%v of version 1: %v", o, m)
		}
	}
}

// TestEncodeMasks: a value that is too large for its field does not change other fields.
func TestEncodeMasks(t *testing.T) {
	for i := range 256 {
		h := Header{Opcode: Opcode(i), Pad: 0xff, DestQPN: ^uint32(0), PSN: ^PSN(0), MSN: ^uint32(0), SourceQPN: ^uint32(0), Reserved: Reserved{0xff, 0xff, 0}}
		b := make([]byte, MaxHeaderBytes)
		n := h.Encode(b)
		if n != h.Opcode.HeaderBytes() {
			t.Fatalf("%v: %d bytes", h.Opcode, n)
		}
		if n == 0 {
			continue
		}
		var got Header
		got.Decode(b)
		if got.Solicited || got.MigReq || got.FECN || got.BECN || got.AckReq || got.Pad != 3 || got.PSN != mask24 || got.DestQPN != mask24 ||
			got.Syndrome != 0 || got.Reserved.DETH != 0 {
			t.Errorf("%v: %+v", h.Opcode, got)
		}
	}
}
