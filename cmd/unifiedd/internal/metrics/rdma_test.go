package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/verbs"
	"github.com/unifiedd/unifiedd/umem"
)

// collectFunc makes a collector from a function.
type collectFunc func(chan<- prometheus.Metric)

func (collectFunc) Describe(chan<- *prometheus.Desc)       {}
func (f collectFunc) Collect(out chan<- prometheus.Metric) { f(out) }

// gather returns the lines of a scrape. Prometheus' own check must accept them.
func gather(t *testing.T, f collectFunc) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(f)
	problems, err := testutil.GatherAndLint(r)
	testenv.Must(t, err)
	for _, p := range problems {
		t.Errorf("metric %s: %s", p.Metric, p.Text)
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// scrapeOf returns the lines of a scrape of a status.
func scrapeOf(t *testing.T, d *status.Daemon) string {
	t.Helper()
	return gather(t, func(out chan<- prometheus.Metric) { collect(out, d) })
}

// TestCollectCounters: a scrape works with any counter names of a driver.
func TestCollectCounters(t *testing.T) {
	counters := []verbs.Counter{
		{Name: "VL15_dropped", Value: 3}, {Name: "port_rcv_data", Value: 1 << 40},
		{Name: "sent_pkts", Value: 5, Hardware: true}, {Name: "sent_pkts", Value: 6},
		{Name: "tx.roce-errors", Value: 7, Hardware: true}, {Name: "tx_roce_errors", Value: 8, Hardware: true},
		{Name: "é", Value: 9, Hardware: true},
	}
	text := gather(t, func(out chan<- prometheus.Metric) {
		collectCounters(out, "eth1", "mlx5_0", counters)
		collectCounters(out, "eth2", "mlx5_1", counters)
	})
	for _, want := range []string{
		`unifiedd_rdma_port_vl15_dropped{device="mlx5_0",interface="eth1"} 3`,
		`unifiedd_rdma_port_port_rcv_data{device="mlx5_1",interface="eth2"} 1.099511627776e+12`,
		`unifiedd_rdma_hw_sent_pkts{device="mlx5_0",interface="eth1"} 5`,
		`unifiedd_rdma_port_sent_pkts{device="mlx5_0",interface="eth1"} 6`,
		`unifiedd_rdma_hw_tx_roce_errors{device="mlx5_0",interface="eth1"} 7`,
		`unifiedd_rdma_hw__{device="mlx5_0",interface="eth1"} 9`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

// TestRoCEMetrics: a scrape has the counters of RoCE in software while its device is open.
func TestRoCEMetrics(t *testing.T) {
	testenv.HugePages(t, 16<<20)
	p := testenv.NewPair(t, testenv.PairOptions{})
	region, err := umem.Open(umem.Config{Size: 16 << 20})
	testenv.Must(t, err)
	defer region.Close()
	var d rdma.Device
	p.A.Do(t, func() {
		provider, err := roce.NewProvider(roce.Config{Region: region})
		testenv.Must(t, err)
		if d, err = provider.Open(p.A.Ifname); err != nil {
			t.Fatal(err)
		}
	})
	collect := func(out chan<- prometheus.Metric) { collectRDMA(out, nil) }
	text, labels := gather(t, collect), `{device="roce:`+p.A.Ifname+`",interface="`+p.A.Ifname+`"} 0`
	for _, name := range []string{"packets_sent", "dropped_bad_psn", "copied_bytes"} {
		if want := "unifiedd_rdma_roce_" + name + "_total" + labels; !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	testenv.Must(t, d.Close())
	if text := gather(t, collect); text != "" {
		t.Errorf("a device that is closed has\n%s", text)
	}
}
