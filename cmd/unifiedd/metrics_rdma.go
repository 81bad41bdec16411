package main

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// collectRDMA sends the counters of the RDMA ports that are on interfaces of flows, and of those that this process makes in
// software. What such a port takes no capture on its interface sees; these say how much it was.
func collectRDMA(out chan<- prometheus.Metric, all []status.Flow) {
	done := make(map[string]bool)
	for i := range all {
		iface := all[i].From
		if done[iface] {
			continue
		}
		done[iface] = true
		ports, _ := verbs.PortsOf(iface) // what cannot be read is left out, and not all other metrics with it
		for _, p := range ports {
			counters, _ := verbs.ReadCounters(p.Device, p.Port)
			collectCounters(out, iface, p.Device, counters)
		}
	}
	for _, d := range roce.Opened() {
		collectRoCE(out, d.Name(), d.Counters())
	}
}

// collectRoCE sends those of RoCE in software on an interface, which only rise.
func collectRoCE(out chan<- prometheus.Metric, iface string, counters []roce.Counter) {
	for _, c := range counters {
		d := describe("rdma_roce_"+c.Name+"_total", "A counter of RoCE in software on the interface.", "interface", "device")
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(c.Value), iface, "roce:"+iface)
	}
}

// collectCounters sends those of one port. The kernel says of none whether it may fall, so
// they have no type. Names that differ in what a metric's name cannot say are one metric,
// and one value of it is all that may be sent.
func collectCounters(out chan<- prometheus.Metric, iface, device string, counters []verbs.Counter) {
	sent := make(map[string]bool)
	for _, c := range counters {
		name := counterName(c)
		if sent[name] {
			continue
		}
		sent[name] = true
		d := describe(name, "A counter of the RDMA port on the interface, by the kernel's name for it.", "interface", "device")
		out <- prometheus.MustNewConstMetric(d, prometheus.UntypedValue, float64(c.Value), iface, device)
	}
}

// counterName is what a counter is called: those of all ports are apart from a device's own.
func counterName(c verbs.Counter) string {
	prefix := "rdma_port_"
	if c.Hardware {
		prefix = "rdma_hw_"
	}
	return prefix + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(c.Name))
}
