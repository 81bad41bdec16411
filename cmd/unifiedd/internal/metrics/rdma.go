package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// collectRDMA sends the counters of the RDMA ports on interfaces of flows, and of the ports that
// this process has in software. A capture on the interface does not see the packets that such a
// port receives.
func collectRDMA(out chan<- prometheus.Metric, all []status.Flow) {
	done := make(map[string]bool)
	for i := range all {
		iface := all[i].From
		if done[iface] {
			continue
		}
		done[iface] = true
		ports, _ := verbs.PortsOf(iface) // leave out ports that cannot be read, and keep all other metrics
		for _, p := range ports {
			counters, _ := verbs.ReadCounters(p.Device, p.Port)
			collectCounters(out, iface, p.Device, counters)
		}
	}
	for _, d := range roce.Opened() {
		collectRoCE(out, d.Name(), d.Counters())
	}
}

// collectRoCE sends the counters of RoCE in software on an interface. They only rise.
func collectRoCE(out chan<- prometheus.Metric, iface string, counters []roce.Counter) {
	for _, c := range counters {
		d := newDesc("rdma_roce_"+c.Name+"_total", "A counter of RoCE in software on the interface.", "interface", "device")
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(c.Value), iface, "roce:"+iface)
	}
}

// collectCounters sends the counters of one port. They are untyped, since the kernel does not say
// whether a counter may fall. If names differ only in characters that a metric's name cannot have,
// they become one metric with one value.
func collectCounters(out chan<- prometheus.Metric, iface, device string, counters []verbs.Counter) {
	sent := make(map[string]bool)
	for _, c := range counters {
		name := counterName(c)
		if sent[name] {
			continue
		}
		sent[name] = true
		d := newDesc(name, "A counter of the RDMA port on the interface, by the kernel's name for it.", "interface", "device")
		out <- prometheus.MustNewConstMetric(d, prometheus.UntypedValue, float64(c.Value), iface, device)
	}
}

// counterName returns the metric of a counter. The counters of ports and of devices have different
// prefixes.
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
