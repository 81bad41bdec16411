// Package metrics turns the status of a daemon into Prometheus metrics. It reads
// the status at each scrape and adds nothing to the work per packet.
// docs/reference/metrics.md lists every metric; a test compares the two.
package metrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/status"
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

// Metric describes one of the daemon's metrics. Rules of alerts and dashboards are made of the table of them.
type Metric struct {
	Name, Help string
	Kind       Kind
	Labels     []string
}

// table has every metric, in the order of the declarations in each file.
var table []Metric

// Table returns the metrics that the daemon describes itself. It has neither those of the Go runtime and of
// the process, nor those of RDMA ports, whose names the kernel gives.
func Table() []Metric { return slices.Clone(table) }

// distributions are the metrics that are neither counters nor gauges.
var distributions = map[string]Kind{"frame_latency_seconds": Histogram, "orders_latency_seconds": Histogram, "replay_lateness_seconds": Histogram, "flow_latency_seconds": Summary}

// describe adds a metric to the table. It is for the declarations of this package: metrics that are found when
// they are collected use newDesc.
func describe(name, help string, labels ...string) *prometheus.Desc {
	kind := cmp.Or(distributions[name], Gauge)
	if strings.HasSuffix(name, "_total") {
		kind = Counter
	}
	table = append(table, Metric{"unifiedd_" + name, help, kind, labels})
	return newDesc(name, help, labels...)
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("unifiedd_"+name, help, labels, nil)
}

// The metrics of the daemon as a whole.
var (
	descFrames     = describe("frames", "Frames of the region by owner: pool, worker, xdp, nvme, rdma, granted, shared, cache, attached. The sum always equals the number of frames in the region.", "owner")
	descClock      = describe("time_seconds", "Time of the daemon's clock, since 1970.")
	descSteps      = describe("clock_steps_total", "How often the system's clock was set by 0.1 s or more.")
	descExpires    = describe("certificate_expires_timestamp_seconds", "When the daemon's certificate expires.")
	descRegion     = describe("region_bytes", "Size of the region.")
	descOrdinary   = describe("region_ordinary_pages", "1 when the region is on ordinary pages instead of huge ones.")
	descAway       = describe("worker_absences_total", "Times of 20 ms or longer for which a worker did not poll its flows, of all workers.")
	descLongest    = describe("worker_absence_longest_seconds", "Longest time for which a worker did not poll its flows.")
	descGeneration = describe("config_generation", "Which configuration the daemon runs with: 1 at the start, one more with each that was applied.")
	descLoaded     = describe("config_last_reload_successful", "1 unless the last attempt to load a configuration failed.")
	descSucceeded  = describe("config_last_reload_success_timestamp_seconds", "When a configuration was last loaded.")
	descReloads    = describe("config_reloads_total", "Reloads by outcome. applied. unchanged. refused: the configuration has mistakes or cannot be read, and nothing was changed. rolled_back: a flow did not start, and the previous flows run again. broken: not all of the previous flows run again. busy: another reload was in progress.", "status")
)

// Describe sends nothing: the flows are known only at scrape time.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends every metric.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.daemon.Status()
	for owner, n := range s.Region.Owners {
		gauge(out, descFrames, float64(n), owner)
	}
	collectConfig(out, &s.Config)
	gauge(out, descClock, float64(time.Now().UnixMicro())/1e6)
	collectIdentity(out, &s)
	gauge(out, descRegion, float64(s.Region.Bytes))
	gauge(out, descOrdinary, truth(s.Region.Ordinary))
	collectWorkers(out, s.Workers)
	for i := range s.Flows {
		collectFlow(out, &s.Flows[i])
		collectPorts(out, &s.Flows[i])
	}
	for _, d := range s.RDMA {
		gauge(out, descPairs, float64(d.QueuePairs), d.Name)
	}
	collectRDMA(out, s.Flows)
	collectPrograms(out, s.Programs)
	collectStates(out, s.States)
	collectCluster(out, s.Cluster)
}

// collectIdentity sends the metrics of the clock and the certificate.
func collectIdentity(out chan<- prometheus.Metric, s *status.Daemon) {
	counter(out, descSteps, s.Clock.Steps)
	if s.TLS != nil {
		gauge(out, descExpires, float64(s.TLS.Expires.Unix()))
	}
}

// collectWorkers sends how often and how long workers stalled.
func collectWorkers(out chan<- prometheus.Metric, ws []status.Worker) {
	count, longest := uint64(0), time.Duration(0)
	for _, w := range ws {
		count, longest = count+w.Away.Count, max(longest, w.Away.Longest)
	}
	counter(out, descAway, count)
	gauge(out, descLongest, longest.Seconds())
}

// collectConfig sends the metrics of the configuration and its reloads.
func collectConfig(out chan<- prometheus.Metric, c *status.Config) {
	gauge(out, descGeneration, float64(c.Generation))
	gauge(out, descLoaded, truth(c.Last == nil || c.Last.Outcome.Good()))
	gauge(out, descSucceeded, float64(c.Succeeded.UnixNano())/1e9)
	for outcome, n := range c.Reloads {
		counter(out, descReloads, n, string(outcome))
	}
}

// each sends a counter for every reason. The reason is the last label.
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
