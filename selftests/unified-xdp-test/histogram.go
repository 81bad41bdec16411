package main

import "github.com/HdrHistogram/hdrhistogram-go"

// histogram counts round trips in nanoseconds, to three digits, up to a minute.
type histogram struct{ h *hdrhistogram.Histogram }

const slowest = 60e9

func newHistogram() *histogram { return &histogram{hdrhistogram.New(1, slowest, 3)} }

func (h *histogram) record(ns uint64) {
	_ = h.h.RecordValue(int64(min(ns, slowest))) // within range, it is always taken
}

// latency is what is told of a histogram, in nanoseconds.
type latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ns"`
	Min   int64   `json:"min_ns"`
	P50   int64   `json:"p50_ns"`
	P99   int64   `json:"p99_ns"`
	P999  int64   `json:"p99_9_ns"`
	Max   int64   `json:"max_ns"`
}

func (h *histogram) summary() latency {
	v := h.h.ValueAtPercentilesSlice([]float64{50, 99, 99.9})
	return latency{Count: h.h.TotalCount(), Mean: h.h.Mean(), Min: h.h.Min(), P50: v[0], P99: v[1], P999: v[2], Max: h.h.Max()}
}
