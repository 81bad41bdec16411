package wire

import "testing"

func TestPayloadLen(t *testing.T) {
	for n := range 30 {
		h := Header{Opcode: RCSendOnly, Pad: Pad(n)}
		if h.Pad > 3 || (n+int(h.Pad))%4 != 0 {
			t.Fatalf("pad of %d: %d", n, h.Pad)
		}
		total := BTHBytes + n + int(h.Pad) + ICRCBytes
		if got, m := h.PayloadLen(total); got != n || m != WellFormed {
			t.Errorf("%d bytes: %d, %v", n, got, m)
		}
		for wrong := range uint8(4) {
			h := Header{Opcode: RCSendOnly, Pad: wrong}
			for total := range 80 {
				n := total - BTHBytes - ICRCBytes - int(wrong)
				want := WellFormed
				switch {
				case n < 0:
					want = HeaderShort
				case total%4 != 0:
					want = PadWrong
				}
				if got, m := h.PayloadLen(total); m != want || got != max(n, 0)*btoi(want == WellFormed) {
					t.Errorf("%d bytes in all, pad %d: %d, %v; want %v", total, wrong, got, m, want)
				}
			}
		}
	}
}

// TestCheckPayload: CheckPayload accepts the lengths in the column "payload" of the specification's
// table of opcodes: none, exactly the MTU, 1 to the MTU, 0 to the MTU.
func TestCheckPayload(t *testing.T) {
	for _, r := range []struct {
		least, most int
		short       Malformed
		opcodes     []Opcode
	}{
		{256, 256, PayloadPartial, []Opcode{RCSendFirst, RCSendMiddle, RCWriteFirst, RCWriteMiddle, RCReadResponseFirst, RCReadResponseMiddle,
			UCSendFirst, UCSendMiddle, UCWriteFirst, UCWriteMiddle}},
		{1, 256, PayloadMissing, []Opcode{RCSendLast, RCSendLastImmediate, RCSendLastInvalidate, RCWriteLast, RCWriteLastImmediate, RCReadResponseLast,
			UCSendLast, UCSendLastImmediate, UCWriteLast, UCWriteLastImmediate}},
		{0, 256, WellFormed, []Opcode{RCSendOnly, RCSendOnlyImmediate, RCSendOnlyInvalidate, RCWriteOnly, RCWriteOnlyImmediate, RCReadResponseOnly,
			UCSendOnly, UCSendOnlyImmediate, UCWriteOnly, UCWriteOnlyImmediate, UDSendOnly, UDSendOnlyImmediate}},
		{0, 0, WellFormed, []Opcode{RCReadRequest, RCAcknowledge, RCAtomicAcknowledge, RCCompareSwap, RCFetchAdd, Opcode(0x15), Opcode(0xff)}},
		{16, 16, PayloadPartial, []Opcode{CNP}},
	} {
		for _, o := range r.opcodes {
			long := PayloadLong
			switch {
			case r.least == r.most && r.least > 0:
				long = PayloadPartial
			case r.most == 0:
				long = PayloadUnexpected
			}
			for n := range 300 {
				want := WellFormed
				switch {
				case n < r.least:
					want = r.short
				case n > r.most:
					want = long
				}
				if m := CheckPayload(o, n, 256); m != want {
					t.Errorf("%v with %d bytes: %v, want %v", o, n, m, want)
				}
			}
		}
	}
}

// TestReasons: every reason has a different name, which a label can use.
func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for m := range Reasons {
		name := m.String()
		if name == "" || seen[name] {
			t.Errorf("reason %d is called %q", m, name)
		}
		for _, r := range name {
			if r != '_' && (r < 'a' || r > 'z') {
				t.Errorf("reason %q is no label", name)
			}
		}
		seen[name] = true
	}
	if Reasons.String() != "malformed_21" {
		t.Errorf("%v", Reasons)
	}
}
