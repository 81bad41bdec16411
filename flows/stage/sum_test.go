package stage

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// encode writes elements of size bytes one after the other, each with its bits.
func encode(size int, bits []uint64) (b []byte) {
	for _, v := range bits {
		for i := range size {
			b = append(b, byte(v>>(8*i)))
		}
	}
	return b
}

// plain are the additions in Go's own arithmetic.
var plain = map[Type]func(a, b uint64) uint64{
	Int32: func(a, b uint64) uint64 { return uint64(uint32(int32(a) + int32(b))) },
	Int64: func(a, b uint64) uint64 { return uint64(int64(a) + int64(b)) },
	Float32: func(a, b uint64) uint64 {
		return uint64(math.Float32bits(math.Float32frombits(uint32(a)) + math.Float32frombits(uint32(b))))
	},
	Float64: func(a, b uint64) uint64 { return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b)) },
}

// TestSum: every element is added to its counterpart.
func TestSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom([]Type{Int32, Int64, Float32, Float64}).Draw(t, "type")
		a := rapid.SliceOfN(rapid.Uint64(), 0, 40).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Uint64(), len(a), len(a)).Draw(t, "b")
		var want []uint64
		for i := range a {
			want = append(want, plain[of](a[i], b[i]))
		}
		s, err := NewSum(of)
		if err != nil {
			t.Fatal(err)
		}
		dst, src := encode(of.Size(), a), encode(of.Size(), b)
		kept := bytes.Clone(src)
		if !s.Add(dst, src) {
			t.Fatal("is refused")
		}
		if diff := cmp.Diff(encode(of.Size(), want), dst); diff != "" {
			t.Errorf("%s (-want +got):\n%s", of, diff)
		}
		if !bytes.Equal(src, kept) {
			t.Error("what is added changed")
		}
	})
}

func TestSumRefuses(t *testing.T) {
	if s, err := NewSum("int16"); err == nil || s != nil {
		t.Errorf("got %v, %v", s, err)
	}
	s, err := NewSum(Int64)
	testenv.Must(t, err)
	dst := make([]byte, 16)
	for _, n := range []int{8, 15, 17, 24} {
		if s.Add(dst, bytes.Repeat([]byte{1}, n)) {
			t.Errorf("%d bytes are added to 16", n)
		}
	}
	if s.Add(make([]byte, 12), make([]byte, 12)) || !s.Add(dst, dst) || !s.Add(nil, nil) {
		t.Error("12 bytes are added, or 16 or none are not")
	}
	if s.Whole(make([]byte, 9)) || !s.Whole(nil) || !s.Whole(dst) {
		t.Error("9 bytes are whole elements, or none or 16 are not")
	}
	if !bytes.Equal(dst, make([]byte, 16)) {
		t.Errorf("what is refused changed %x", dst)
	}
	want := StepStats{Kind: "sum", Changed: 2, Left: map[string]uint64{"other_length": 4, "broken_element": 2}}
	if diff := cmp.Diff(want, s.Stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
