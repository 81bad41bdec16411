package wire

import (
	"math/rand/v2"
	"testing"
)

// TestAcknowledges: for a valid packet it agrees with Header, and for others it reads nothing
// beyond their end.
func TestAcknowledges(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	said := map[bool]int{}
	for range 20_000 {
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if len(b) > 1 {
			b[0], b[1] = byte([]Opcode{RCAcknowledge, RCAtomicAcknowledge, RCSendOnly, UDSendOnly}[r.IntN(4)]), b[1]&^versionMask
		}
		var h Header
		got := Acknowledges(b)
		if _, why := h.Decode(b); why == WellFormed {
			if want := h.Opcode == RCAcknowledge && h.Syndrome.IsACK(); got != want {
				t.Fatalf("%x: %v, want %v", b, got, want)
			}
			said[got]++
		}
	}
	if said[true] < 200 || said[false] < 200 {
		t.Errorf("too few of a kind: %v", said)
	}
}
