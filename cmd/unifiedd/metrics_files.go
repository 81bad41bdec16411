package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// The metrics of what files hold, and of the room for them.
var (
	descCut      = describe("cut_packets_total", "Packets longer than the snapshot length, of which only that much was kept.", "flow")
	descCutBytes = describe("cut_bytes_total", "Bytes of packets beyond the snapshot length, which were left out.", "flow")
	descRemoved  = describe("removed_segments_total", "Complete segments that were removed, by what asked for it.", "flow", "reason")
	descNoHead   = describe("unreadable_segments", "Segments whose heads could not be read when the flow began.", "flow")
	descFree     = describe("disk_free_bytes", "Free space of the disk, as seen last, where some is kept free.", "flow")
	descFloor    = describe("disk_floor_bytes", "How much of the disk is to stay free.", "flow")
	descShort    = describe("disk_pauses_total", "How often nothing could be written for want of room.", "flow")
	descShortFor = describe("disk_paused_seconds_total", "How long nothing could be written for want of room.", "flow")
)

// collectFiles sends what there is of files in a flow.
func collectFiles(out chan<- prometheus.Metric, f *status.Flow) {
	if c := f.Cut; c != nil {
		counter(out, descCut, c.Packets, f.Name)
		counter(out, descCutBytes, c.Bytes, f.Name)
	}
	each(out, descRemoved, f.Removed, f.Name)
	if f.Held != nil {
		gauge(out, descNoHead, float64(f.Held.Unreadable), f.Name)
	}
	if r := f.Floor; r != nil {
		gauge(out, descFree, float64(r.Free), f.Name)
		gauge(out, descFloor, float64(r.Bytes), f.Name)
		counter(out, descShort, r.Pauses, f.Name)
		out <- prometheus.MustNewConstMetric(descShortFor, prometheus.CounterValue, r.Paused, f.Name)
	}
}
