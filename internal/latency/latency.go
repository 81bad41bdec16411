// Package latency collects latencies, for the programs that measure.
package latency

import "github.com/HdrHistogram/hdrhistogram-go"

// most is the longest time that is recorded as it is: a minute. Longer times count as a minute.
const most = 60e9

// Histogram counts times in nanoseconds, to three digits. It belongs to one
// goroutine at a time.
type Histogram struct{ h *hdrhistogram.Histogram }

// New makes an empty histogram.
func New() *Histogram { return &Histogram{hdrhistogram.New(1, most, 3)} }

// Record counts one time. It does not allocate.
func (h *Histogram) Record(ns uint64) {
	_ = h.h.RecordValue(int64(min(ns, most))) // within range, it is always taken
}

// Summary is the reported values of a histogram.
type Summary struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ns"`
	Min   int64   `json:"min_ns"`
	P50   int64   `json:"p50_ns"`
	P99   int64   `json:"p99_ns"`
	P999  int64   `json:"p99_9_ns"`
	Max   int64   `json:"max_ns"`
}

// Summary returns the summary; nil if there is no histogram, or it is empty.
func (h *Histogram) Summary() *Summary {
	if h == nil || h.h.TotalCount() == 0 {
		return nil
	}
	v := h.h.ValueAtPercentilesSlice([]float64{50, 99, 99.9})
	return &Summary{
		Count: h.h.TotalCount(), Mean: h.h.Mean(), Min: h.h.Min(),
		P50: v[0], P99: v[1], P999: v[2], Max: h.h.Max(),
	}
}
