package wire

import "testing"

// TestNoAllocations: sending and receiving a packet of any kind does not allocate.
func TestNoAllocations(t *testing.T) {
	frame, payload := make([]byte, 512), make([]byte, 64)
	for _, ipv6 := range []bool{false, true} {
		template := benchTemplate(t, ipv6)
		for _, o := range []Opcode{RCSendOnly, RCWriteOnlyImmediate, RCFetchAdd, RCAtomicAcknowledge, UDSendOnlyImmediate} {
			var e Envelope
			body := payload
			if !o.CarriesPayload() {
				body = nil
			}
			h := Header{Opcode: o}
			if n := testing.AllocsPerRun(100, func() {
				n := send(frame, template, 1, &h, body)
				if m := receive(frame[:n], &e, &h, 256); m != WellFormed {
					t.Fatal(m)
				}
			}); n != 0 {
				t.Errorf("%v: %v allocations", o, n)
			}
		}
	}
}

// TestRefusalsDoNotAllocate: refusing a packet does not allocate.
func TestRefusalsDoNotAllocate(t *testing.T) {
	template := benchTemplate(t, false)
	frame := make([]byte, 256)
	n := send(frame, template, 1, &Header{Opcode: RCSendOnly}, nil)
	var counts [Reasons]uint64
	if n := testing.AllocsPerRun(100, func() {
		var e Envelope
		var h Header
		for at := range n {
			frame[at] ^= 0xff
			counts[receive(frame[:n], &e, &h, 256)]++
			frame[at] ^= 0xff
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if counts[ICRCWrong] == 0 || counts[NotRoCE] == 0 || counts[IPChecksum] == 0 {
		t.Errorf("reasons %v", counts)
	}
}
