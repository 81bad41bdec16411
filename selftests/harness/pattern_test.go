package harness

import (
	"bytes"
	"testing"
)

// TestPattern: Differs detects a change of any byte, and no message equals another.
func TestPattern(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 255} {
		b, other := make([]byte, n), make([]byte, n)
		Fill(b, 1, 2)
		Fill(other, 1, 3)
		if at := Differs(b, 1, 2); at >= 0 {
			t.Errorf("%d bytes differ from byte %d on", n, at)
		}
		if n > 1 && bytes.Equal(b, other) {
			t.Errorf("two messages of %d bytes are the same", n)
		}
		for i := range b {
			b[i] ^= 1
			if at := Differs(b, 1, 2); at != i {
				t.Errorf("byte %d of %d is changed, and byte %d differs", i, n, at)
			}
			b[i] ^= 1
		}
	}
}
