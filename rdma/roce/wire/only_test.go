package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestOnly: Only and Header decode the same values and write the same bytes, and Only accepts every
// single-packet message without unusual fields.
func TestOnly(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	took := 0
	for range 20_000 {
		b := make([]byte, r.IntN(80))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if len(b) > 4 && r.IntN(8) > 0 {
			b[0] = byte([]Opcode{RCSendOnly, RCWriteOnly, RCSendLast, UCSendOnly}[r.IntN(4)])
			b[1], b[2], b[3] = b[1]&^versionMask, b[2]|0x7f, 0xff
		}
		if checkOnly(t, b) {
			took++
		}
	}
	if took < 1000 {
		t.Errorf("only %d were taken", took)
	}
}

// checkOnly decodes a packet with both, and reports whether Only accepts it.
func checkOnly(t *testing.T, b []byte) bool {
	t.Helper()
	var o Only
	var h Header
	from, length, ok := o.Decode(b)
	n, m := h.Decode(b)
	want := 0
	if m == WellFormed {
		want, m = h.PayloadLen(len(b))
	}
	if simple := m == WellFormed && (h.Opcode == RCSendOnly || h.Opcode == RCWriteOnly) && h.PKey|0x8000 == DefaultPKey; ok != simple {
		t.Fatalf("%x: %v, and %v", b, ok, m)
	}
	if !ok {
		return false
	}
	if from != n || length != want || o.HeaderBytes() != n {
		t.Fatalf("%x: payload of %d bytes at %d, not %d at %d", b, length, from, want, n)
	}
	again := Header{Opcode: RCSendOnly, PKey: DefaultPKey, MigReq: true, Solicited: o.Solicited, AckReq: o.AckReq, Pad: o.Pad, DestQPN: o.DestQPN, PSN: o.PSN}
	if o.Write {
		again.Opcode, again.VA, again.RKey, again.DMALength = RCWriteOnly, o.VA, o.RKey, o.DMALength
	}
	h.PKey, h.MigReq, h.FECN, h.BECN, h.Reserved = DefaultPKey, true, false, false, Reserved{}
	if h != again {
		t.Fatalf("%x: %+v, and not %+v", b, again, h)
	}
	one, two := make([]byte, MaxHeaderBytes), make([]byte, MaxHeaderBytes)
	if o.Encode(one) != h.Encode(two) || !bytes.Equal(one, two) {
		t.Fatalf("%+v is written %x, and not %x", o, one, two)
	}
	return true
}
