package powercut

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestVolatile: a cut leaves what was flushed, and of the rest what its fate says.
func TestVolatile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	block := func(b byte) []byte { return bytes.Repeat([]byte{b}, sector) }
	write := func(v *Volatile, b byte, at int64) {
		if n, err := v.WriteAt(block(b), at); n != sector || err != nil {
			t.Fatal(n, err)
		}
	}
	for _, c := range []struct {
		fate Fate
		lies bool
		want []byte
	}{{Lost, false, []byte{1, 0, 0}}, {Kept, false, []byte{3, 2, 0}}, {Lost, true, []byte{0, 0, 0}}} {
		v := NewVolatile(make([]byte, 3*sector))
		if c.lies {
			v.Lie()
		}
		write(v, 1, 0)
		testenv.Must(t, v.Sync())
		write(v, 2, sector)
		write(v, 3, 0)
		v.Cut(c.fate, r)
		write(v, 4, 2*sector)
		_ = v.Sync()
		b := make([]byte, sector)
		if _, err := v.ReadAt(b, 2*sector); err != nil || !bytes.Equal(b, block(4)) {
			t.Errorf("after the cut, the old system reads %v (%v)", b[0], err)
		}
		v.Restore()
		for i, want := range c.want {
			if _, err := v.ReadAt(b, int64(i*sector)); err != nil || !bytes.Equal(b, block(want)) {
				t.Errorf("%v, lies %v: block %d has %d, want %d (%v)", c.fate, c.lies, i, b[0], want, err)
			}
		}
	}
	v := NewVolatile(make([]byte, sector))
	if _, err := v.WriteAt(block(1), 1); err == nil {
		t.Error("a write over the end succeeds")
	}
}
