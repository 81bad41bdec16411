package main

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/status"
)

// collector makes metrics of a daemon's status when it is scraped; nothing is
// looked up per packet.
type collector struct{ daemon *flows.Daemon }

// newRegistry has the daemon's metrics and those of the process.
func newRegistry(d *flows.Daemon) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{d}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("unifiedd_"+name, help, labels, nil)
}

var (
	descFrames   = describe("frames", "Frames of the region by who holds them; they add up to the region's frames.", "owner")
	descRegion   = describe("region_bytes", "Size of the region.")
	descOrdinary = describe("region_ordinary_pages", "1 when the region is on ordinary pages instead of huge ones.")
	descAway     = describe("worker_absences_total", "Times of 20 ms and more for which a worker did not look at its flows, of all workers.")
	descLongest  = describe("worker_absence_longest_seconds", "Longest time for which a worker did not look at its flows.")
	descUp       = describe("flow_up", "1 while the flow runs.", "flow")
	descWaits    = describe("flow_waiting", "1 while the flow waits for something outside to mend.", "flow")
	descZeroCopy = describe("zero_copy", "1 when the driver granted zero copy.", "flow", "interface")
	descArrival  = describe("arrival_times", "1 when packets have the times at which they arrived, 0 when those at which they were taken from the rings.", "flow", "interface")
	descOffered  = describe("offered_packets_total", "Packets that arrived at the interface.", "flow", "interface")
	descPackets  = describe("received_packets_total", "Packets received from the rings.", "flow", "interface")
	descBytes    = describe("received_bytes_total", "Bytes of packets received from the rings.", "flow", "interface")
	descStamped  = describe("card_stamped_packets_total", "Packets received with a time of the card's clock.", "flow", "interface")
	descFar      = describe("far_ends", "How many of the flow's card, disk and worker are on another NUMA node than the region.", "flow")
	descPassed   = describe("passed_packets_total", "Packets left to the kernel, by reason.", "flow", "interface", "reason")
	descDropped  = describe("dropped_packets_total", "Packets lost, by reason.", "flow", "interface", "reason")
	descRule     = describe("rule_packets_total", "Packets that a rule of the filter matched, since the filter came into force.", "flow", "interface", "rule", "op")
	descRuleSize = describe("rule_bytes_total", "Bytes of packets that a rule of the filter matched, since the filter came into force.", "flow", "interface", "rule", "op")
	descCounted  = describe("filter_count", "What the flow's own filter program counts, by its names.", "flow", "interface", "reason")
	descCopied   = describe("copied_bytes_total", "Bytes of packets copied by unifiedd, by reason.", "flow", "reason")
	descKernel   = describe("kernel_copied_bytes_total", "Bytes of packets copied by the kernel, by device.", "flow", "device")
	descWritten  = describe("written_packets_total", "Packets written to the disk without a gap before them.", "flow")
	descDurable  = describe("durable_packets_total", "Packets on stable storage without a gap before them.", "flow")
	descPending  = describe("waiting_packets", "Packets received and not yet on stable storage.", "flow")
	descDisk     = describe("disk_written_bytes_total", "Bytes written to the disk.", "flow")
	descErrors   = describe("disk_errors_total", "Writes and flushes that failed, by reason.", "flow", "reason")
	descStalls   = describe("stalls_total", "Rounds in which the disk could take no more.", "flow")
	descSegments = describe("segments_total", "Segments begun.", "flow")
)

// Describe sends nothing: which flows there are is known at scrape time only.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends every metric.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.daemon.Status()
	for owner, n := range s.Region.Owners {
		gauge(out, descFrames, float64(n), owner)
	}
	collectConfig(out, &s.Config)
	gauge(out, descRegion, float64(s.Region.Bytes))
	gauge(out, descOrdinary, truth(s.Region.Ordinary))
	collectWorkers(out, s.Workers)
	for i := range s.Flows {
		collectFlow(out, &s.Flows[i])
	}
	for _, d := range s.RDMA {
		gauge(out, descPairs, float64(d.QueuePairs), d.Name)
	}
	collectRDMA(out, s.Flows)
}

// collectWorkers sends for how long the workers looked at no flow.
func collectWorkers(out chan<- prometheus.Metric, ws []status.Worker) {
	count, longest := uint64(0), time.Duration(0)
	for _, w := range ws {
		count, longest = count+w.Away.Count, max(longest, w.Away.Longest)
	}
	counter(out, descAway, count)
	gauge(out, descLongest, longest.Seconds())
}

func collectFlow(out chan<- prometheus.Metric, f *status.Flow) {
	gauge(out, descUp, truth(f.State.Up()), f.Name)
	gauge(out, descWaits, truth(f.State == status.Waiting), f.Name)
	collectTaken(out, f)
	gauge(out, descFar, float64(len(f.Far)), f.Name)
	each(out, descCopied, f.CopiedBytes, f.Name)
	each(out, descKernel, f.KernelBytes, f.Name)
	counter(out, descWritten, f.Written.Packets, f.Name)
	counter(out, descDurable, f.Durable.Packets, f.Name)
	if strings.HasSuffix(f.Kind, "-storage") {
		gauge(out, descPending, float64(waiting(f)), f.Name)
	}
	counter(out, descDisk, f.DiskBytes, f.Name)
	each(out, descErrors, f.DiskErrors, f.Name)
	counter(out, descStalls, f.Stalls, f.Name)
	counter(out, descSegments, f.Segments, f.Name)
	collectFiles(out, f)
	collectIndex(out, f)
	collectStreams(out, f)
	collectFrames(out, f)
	collectReplay(out, f)
}

// collectTaken sends what a flow takes: packets of an interface, or messages and requests, which have none.
func collectTaken(out chan<- prometheus.Metric, f *status.Flow) {
	iface := ""
	if strings.HasPrefix(f.Kind, "network-") {
		iface = f.From
		gauge(out, descZeroCopy, truth(f.ZeroCopy), f.Name, iface)
		gauge(out, descArrival, truth(f.NoArrival == ""), f.Name, iface)
		counter(out, descOffered, f.Offered, f.Name, iface)
		counter(out, descStamped, f.CardStamped, f.Name, iface)
		each(out, descPassed, f.Passed, f.Name, iface)
		collectFilter(out, f)
	}
	counter(out, descPackets, f.Packets, f.Name, iface)
	counter(out, descBytes, f.Bytes, f.Name, iface)
	each(out, descDropped, f.Dropped, f.Name, iface)
}

// collectFilter sends what rules, or a program of the user's own, have counted.
func collectFilter(out chan<- prometheus.Metric, f *status.Flow) {
	for _, r := range f.Rules {
		counter(out, descRule, r.Packets, f.Name, f.From, r.Name, r.Action)
		counter(out, descRuleSize, r.Bytes, f.Name, f.From, r.Name, r.Action)
	}
	for _, c := range f.FilterCounts {
		out <- prometheus.MustNewConstMetric(descCounted, prometheus.UntypedValue, float64(c.Value), f.Name, f.From, c.Name)
	}
}

// waiting is how many of the packets received may yet become durable.
func waiting(f *status.Flow) uint64 {
	settled := f.Durable.Packets + f.Dropped["beyond_count"] + f.Dropped["write_failed"]
	return f.Packets - min(settled, f.Packets) // the counters are read one after the other
}

// each sends a counter for every reason, the last label.
func each(out chan<- prometheus.Metric, d *prometheus.Desc, by map[string]uint64, labels ...string) {
	for reason, n := range by {
		counter(out, d, n, append(labels[:len(labels):len(labels)], reason)...)
	}
}

func counter(out chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
