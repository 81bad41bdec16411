// Package metrics turns the status of a daemon into Prometheus metrics. It reads
// the status at each scrape and adds nothing to the work per packet.
// docs/reference/metrics.md lists every metric; a test compares the two.
package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// collector implements [prometheus.Collector] for a daemon.
type collector struct{ daemon *flows.Daemon }

// NewRegistry returns a registry with the metrics of a daemon, of the Go runtime
// and of the process.
func NewRegistry(d *flows.Daemon) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{d}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Kind is how a metric counts.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
	Summary   Kind = "summary"
)

// Metric describes one of the daemon's metrics. Rules of alerts and dashboards are made of the table of them. Names in
// the table are without their prefix.
type Metric struct {
	Name, Help string
	Labels     []string
}

// Kind returns how the metric counts.
func (m Metric) Kind() Kind {
	switch name := strings.TrimPrefix(m.Name, prefix); {
	case strings.HasSuffix(name, "_total"):
		return Counter
	case name == "flow_latency_seconds":
		return Summary
	case name == "frame_latency_seconds" || name == "orders_latency_seconds" || name == "replay_lateness_seconds":
		return Histogram
	}
	return Gauge
}

const prefix = "unifiedd_"

// Table returns the metrics that the daemon describes itself. It has neither those of the Go runtime and of
// the process, nor those of RDMA ports, whose names the kernel gives.
func Table() []Metric {
	all := slices.Clone(table)
	for i := range all {
		all[i].Name = prefix + all[i].Name
	}
	return all
}

// described is a metric, as a scrape needs it.
type described struct {
	labels []string
	desc   *prometheus.Desc
	kind   prometheus.ValueType
}

// byName has the metrics of the table.
var byName = func() map[string]*described {
	all := map[string]*described{}
	for _, m := range table {
		d := &described{m.Labels, newDesc(m.Name, m.Help, m.Labels...), prometheus.GaugeValue}
		switch {
		case m.Kind() == Counter:
			d.kind = prometheus.CounterValue
		case m.Name == "filter_count": // only the author of the filter's program knows whether it may decrease
			d.kind = prometheus.UntypedValue
		}
		all[m.Name] = d
	}
	return all
}()

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

// Describe sends nothing: the flows are known only at scrape time.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends every metric.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.daemon.Status()
	collect(out, &s)
	collectRDMA(out, s.Flows)
}

// The exponents of the bounds of histograms, which are powers of two in nanoseconds: about 1 µs to
// 17 s.
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

// summary sends the quantiles of a latency, if there is one.
func summary(out chan<- prometheus.Metric, d *prometheus.Desc, l *latency.Summary, labels ...string) {
	if l == nil {
		return
	}
	seconds := func(ns int64) float64 { return float64(ns) / 1e9 }
	out <- prometheus.MustNewConstSummary(d, uint64(l.Count), l.Mean*float64(l.Count)/1e9,
		map[float64]float64{0.5: seconds(l.P50), 0.99: seconds(l.P99), 0.999: seconds(l.P999)}, labels...)
}
