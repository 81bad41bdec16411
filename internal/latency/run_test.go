package latency

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRun: a run records the same as single calls of Record.
func TestRun(t *testing.T) {
	var alone, together Shared
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		r := together.Run()
		for range random.IntN(64) {
			ns := uint64(1000 + random.IntN(200)<<random.IntN(20))
			alone.Record(ns)
			r.Record(ns)
		}
		r.End()
	}
	if diff := cmp.Diff(alone.Distribution(), together.Distribution()); diff != "" {
		t.Errorf("one by one, and in runs:\n%s", diff)
	}
	var empty Shared
	r := empty.Run()
	if r.End(); empty.Distribution() != nil {
		t.Errorf("of nothing: %+v", empty.Distribution())
	}
	if n := testing.AllocsPerRun(100, func() { r := together.Run(); r.Record(5); r.End() }); n != 0 {
		t.Errorf("a run allocates %v times", n)
	}
}

// TestDistribution: each time is in the bucket of its power of two.
func TestDistribution(t *testing.T) {
	var s Shared
	for _, ns := range []uint64{0, 1, 2, 3, 1023, 1024, 1025, 2047, 1 << 40} {
		s.Record(ns)
	}
	want := []Bucket{{1, 1}, {2, 1}, {4, 2}, {1024, 1}, {2048, 3}, {1 << 36, 1}}
	if diff := cmp.Diff(want, s.Distribution().Buckets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
