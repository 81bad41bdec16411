package latency

import (
	"math"
	"testing"
)

func TestShared(t *testing.T) {
	var s Shared
	if got := s.Summary(); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
	for i := range uint64(1000) {
		s.Record((i + 1) * 1000)
	}
	got := s.Summary()
	near := func(got, want int64) bool { return math.Abs(float64(got-want)) < float64(want)*0.04 }
	if got.Count != 1000 || got.Min != 1000 || got.Max != 1_000_000 || !near(got.P50, 500_000) || !near(got.P99, 990_000) || !near(got.P999, 999_000) || !near(int64(got.Mean), 500_500) {
		t.Errorf("%+v", got)
	}
	if n := testing.AllocsPerRun(100, func() { s.Record(123) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}

// TestBuckets: each time falls into a bucket whose middle is near, and buckets are in order.
func TestBuckets(t *testing.T) {
	last := -1
	for _, ns := range []uint64{0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 1000, 1 << 20, 1<<20 + 1<<15, 1<<35 + 5} {
		b := bucketOf(ns)
		if b < last {
			t.Errorf("%d is in bucket %d, and less is in %d", ns, b, last)
		}
		last = b
		if off := math.Abs(float64(middle(b)) - float64(ns)); off > float64(ns)/30+0.5 {
			t.Errorf("%d is in bucket %d, whose middle is %d", ns, b, middle(b))
		}
	}
	if b := bucketOf(math.MaxUint64); b != buckets-1 {
		t.Errorf("the longest time is in bucket %d of %d", b, buckets)
	}
}
