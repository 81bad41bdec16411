package wire

import (
	"math/rand/v2"
	"testing"
)

// TestReaderIsEnvelope: after any packet, a Reader returns the same as Envelope.
func TestReaderIsEnvelope(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var samples [][]byte
	for _, ipv6 := range []bool{false, true} {
		for tags := range 2 {
			samples = append(samples, sample(t, ipv6, tags))
		}
	}
	var r Reader
	repeated := 0
	for range 200_000 {
		frame := append([]byte(nil), samples[rng.IntN(8)%5%len(samples)]...)
		length := len(frame)
		if rng.IntN(2) == 0 {
			frame[rng.IntN(50)] ^= 1 << rng.IntN(8)
			mend(frame)
		}
		if rng.IntN(4) == 0 {
			frame = frame[:rng.IntN(len(frame))]
		}
		if rng.IntN(4) == 0 {
			length = len(frame) + rng.IntN(3) - 1
		}
		if r.known && r.repeats(frame, length) {
			repeated++
		}
		var e Envelope
		want := e.Parse(frame, length)
		if m := r.Parse(frame, length); m != want || m == WellFormed && r.Envelope != e {
			t.Fatalf("%x of %d: %v, %+v; want %v, %+v", frame, length, m, r.Envelope, want, e)
		}
	}
	if repeated < 1000 {
		t.Errorf("%d of the packets repeated the last one", repeated)
	}
}
