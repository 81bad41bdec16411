package latency

import "testing"

func TestSummary(t *testing.T) {
	h := New()
	if s := h.Summary(); s != nil {
		t.Errorf("of nothing: %+v", s)
	}
	for i := range uint64(1000) {
		h.Record((i + 1) * 1000)
	}
	s := h.Summary()
	near := func(got, want int64) bool { return got > want-want/500 && got < want+want/500 }
	if s.Count != 1000 || !near(s.Min, 1000) || !near(s.P50, 500_000) || !near(s.P99, 990_000) || !near(s.P999, 999_000) || !near(s.Max, 1_000_000) {
		t.Errorf("%+v", s)
	}
}

func TestRecordIsBounded(t *testing.T) {
	h := New()
	h.Record(1 << 60)
	if s := h.Summary(); s.Count != 1 || s.Max < 59e9 || s.Max > 61e9 {
		t.Errorf("%+v", s)
	}
	if n := testing.AllocsPerRun(100, func() { h.Record(123) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}
