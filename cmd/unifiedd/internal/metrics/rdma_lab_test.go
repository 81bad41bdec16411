package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
)

// TestRDMAMetrics: a scrape has the counters of an RDMA device once, also if two flows have its
// interface.
func TestRDMAMetrics(t *testing.T) {
	labenv.Guest(t)
	device := labenv.SoftRoCE(t, "virtio0", "10.79.0.1/24")
	of := func(cards ...string) string {
		var all []status.Flow
		for _, card := range cards {
			all = append(all, status.Flow{From: card})
		}
		return gather(t, func(out chan<- prometheus.Metric) { collectRDMA(out, all) })
	}
	if text := of("virtio1", "lo", ""); text != "" {
		t.Errorf("interfaces without RDMA have\n%s", text)
	}
	text := of("virtio0", "virtio1", "virtio0")
	if want := `unifiedd_rdma_hw_sent_pkts{device="` + device + `",interface="virtio0"} `; strings.Count(text, want) != 1 {
		t.Errorf("%s is not there once:\n%s", want, text)
	}
}
