package main

import "github.com/HdrHistogram/hdrhistogram-go"

// histogram counts latencies in nanoseconds, to three digits, up to a minute;
// longer ones count as a minute.
type histogram struct{ h *hdrhistogram.Histogram }

const longest = 60e9

func newHistogram() *histogram { return &histogram{hdrhistogram.New(1, longest, 3)} }

func (h *histogram) record(ns uint64) {
	_ = h.h.RecordValue(int64(min(ns, longest))) // within range, it is always taken
}

// latency is what is told of a histogram, in nanoseconds.
type latency struct {
	Mean float64 `json:"mean_ns"`
	Min  int64   `json:"min_ns"`
	P50  int64   `json:"p50_ns"`
	P99  int64   `json:"p99_ns"`
	P999 int64   `json:"p99_9_ns"`
	Max  int64   `json:"max_ns"`
}

// summary is nil when nothing was recorded.
func (h *histogram) summary() *latency {
	if h == nil || h.h.TotalCount() == 0 {
		return nil
	}
	v := h.h.ValueAtPercentilesSlice([]float64{50, 99, 99.9})
	return &latency{Mean: h.h.Mean(), Min: h.h.Min(), P50: v[0], P99: v[1], P999: v[2], Max: h.h.Max()}
}
