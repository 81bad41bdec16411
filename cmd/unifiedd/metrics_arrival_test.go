package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// TestCollectArrival: a scrape says which packets have no times of arrival.
func TestCollectArrival(t *testing.T) {
	text := gather(t, func(out chan<- prometheus.Metric) {
		collectTaken(out, &status.Flow{Name: "exact", Kind: "network-storage", From: "eth1"})
		collectTaken(out, &status.Flow{Name: "late", Kind: "network-storage", From: "eth2", NoArrival: "an old dispatcher"})
		collectTaken(out, &status.Flow{Name: "messages", Kind: "rdma-storage"})
	})
	for _, want := range []string{`unifiedd_arrival_times{flow="exact",interface="eth1"} 1`, `unifiedd_arrival_times{flow="late",interface="eth2"} 0`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\nunifiedd_arrival_times{"); n != 2 {
		t.Errorf("%d flows have times of arrival or not, want 2", n)
	}
}
