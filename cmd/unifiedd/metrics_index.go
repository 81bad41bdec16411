package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/unifiedd/unifiedd/flows/status"
)

var (
	descIndexed      = describe("index_segments_total", "Segments that have an index, made by this run.", "flow")
	descIndexWaiting = describe("index_waiting_segments", "Complete segments that have no index yet.", "flow")
	descIndexFailed  = describe("index_failures_total", "Segments that stay without an index until the next start.", "flow")
	descIndexBytes   = describe("index_bytes_total", "Bytes of the indexes made.", "flow")
	descIndexCPU     = describe("index_cpu_seconds_total", "Processors' time that making indexes took.", "flow")
)

// collectIndex sends what became of indexes.
func collectIndex(out chan<- prometheus.Metric, f *status.Flow) {
	x := f.Index
	if x == nil {
		return
	}
	counter(out, descIndexed, x.Segments, f.Name)
	gauge(out, descIndexWaiting, float64(x.Waiting), f.Name)
	counter(out, descIndexFailed, x.Failed, f.Name)
	counter(out, descIndexBytes, x.Bytes, f.Name)
	out <- prometheus.MustNewConstMetric(descIndexCPU, prometheus.CounterValue, x.CPU.Seconds(), f.Name)
}
