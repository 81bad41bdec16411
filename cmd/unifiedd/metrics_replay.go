package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// The metrics of captures that are sent.
var (
	descPlayed   = describe("replay_captures_total", "Captures that were sent to their ends, each time that they were.", "flow")
	descLate     = describe("replay_late_packets_total", "Packets of captures that left later than to.late after their time.", "flow")
	descLateness = describe("replay_lateness_seconds", "From the time of a packet of a capture until the device had taken it.", "flow")
	descUnsent   = describe("replay_unsent_packets_total", "Packets that the interface dropped instead of sending them, from whoever they were.", "flow", "interface")
	descRested   = describe("replay_paused_seconds_total", "How long the interface was down and nothing was sent.", "flow")
)

// collectReplay sends what there is of captures in a flow.
func collectReplay(out chan<- prometheus.Metric, f *status.Flow) {
	r := f.Replay
	if r == nil {
		return
	}
	counter(out, descOffered, f.Offered, f.Name, f.To)
	gauge(out, descZeroCopy, truth(f.ZeroCopy), f.Name, f.To)
	counter(out, descPlayed, r.Played, f.Name)
	counter(out, descLate, r.Late, f.Name)
	counter(out, descUnsent, r.Unsent, f.Name, f.To)
	out <- prometheus.MustNewConstMetric(descRested, prometheus.CounterValue, r.Paused, f.Name)
	histogram(out, descLateness, r.Lateness, f.Name)
}
