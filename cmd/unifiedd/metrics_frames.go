package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// The metrics of frames between the ends of a flow.
var (
	descHolds     = describe("flow_held_frames", "Frames the flow holds between its ends, those of extents counted each.", "flow")
	descPauses    = describe("flow_pauses_total", "How often the flow held as many frames as it may, and its source had to wait.", "flow")
	descPaused    = describe("flow_paused_seconds_total", "How long its source had to wait for that.", "flow")
	descTimes     = describe("frame_latency_seconds", "From when a packet or message arrived until the device at the other end was told of it (submitted), or it was written, acknowledged by a peer or discarded (done).", "flow", "status")
	descDiscarded = describe("discarded_packets_total", "Packets and messages that were taken to be discarded.", "flow")
)

// collectFrames sends what is known of frames between the ends.
func collectFrames(out chan<- prometheus.Metric, f *status.Flow) {
	if l := f.Level; l != nil {
		gauge(out, descHolds, float64(l.Held), f.Name)
		counter(out, descPauses, l.Pauses, f.Name)
		out <- prometheus.MustNewConstMetric(descPaused, prometheus.CounterValue, l.Paused, f.Name)
	}
	if t := f.FrameTimes; t != nil {
		histogram(out, descTimes, t.Submitted, f.Name, "submitted")
		histogram(out, descTimes, t.Done, f.Name, "done")
	}
	if d := f.Discarded; d != nil {
		counter(out, descDiscarded, d.Packets, f.Name)
	}
}

// The bounds of histograms are powers of two, in nanoseconds: 1 µs to 17 s, about.
const leastBound, mostBound = 10, 34

// histogram sends a distribution, if there is one.
func histogram(out chan<- prometheus.Metric, d *prometheus.Desc, of *latency.Distribution, labels ...string) {
	if of == nil {
		return
	}
	up, seen, next := make(map[float64]uint64), uint64(0), 0
	for power := leastBound; power <= mostBound; power++ {
		for ; next < len(of.Buckets) && of.Buckets[next].Below <= 1<<power; next++ {
			seen += uint64(of.Buckets[next].Count)
		}
		up[float64(int64(1)<<power)/1e9] = seen
	}
	out <- prometheus.MustNewConstHistogram(d, uint64(of.Count), of.Mean*float64(of.Count)/1e9, up, labels...)
}
