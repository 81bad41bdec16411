package metrics

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
)

// TestCollectArrival: a scrape counts the packets that have no time of arrival.
func TestCollectArrival(t *testing.T) {
	text := scrapeOf(t, &status.Daemon{Flows: []status.Flow{
		{Name: "exact", Kind: "network-storage", From: "eth1"},
		{Name: "late", Kind: "network-storage", From: "eth2", NoArrival: "an old dispatcher"},
		{Name: "messages", Kind: "rdma-storage"},
	}})
	for _, want := range []string{`unifiedd_arrival_times{flow="exact",interface="eth1"} 1`, `unifiedd_arrival_times{flow="late",interface="eth2"} 0`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\nunifiedd_arrival_times{"); n != 2 {
		t.Errorf("%d flows have times of arrival or not, want 2", n)
	}
}

// TestCollectBuffer: a scrape has the ring of a packet socket, and none of other flows.
func TestCollectBuffer(t *testing.T) {
	text := scrapeOf(t, &status.Daemon{Flows: []status.Flow{
		{Name: "taken", Kind: "network-storage", From: "eth1"},
		{Name: "copies", Kind: "network-storage", From: "eth2", Buffer: &status.Buffer{Blocks: 64, Held: 3, Full: 2}},
	}})
	for _, want := range []string{`unifiedd_buffer_blocks{flow="copies",interface="eth2"} 64`, `unifiedd_buffer_held_blocks{flow="copies",interface="eth2"} 3`, `unifiedd_buffer_full_total{flow="copies",interface="eth2"} 2`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	if strings.Contains(text, `unifiedd_buffer_blocks{flow="taken"`) {
		t.Errorf("a flow without a ring has one:\n%s", text)
	}
}

// TestWaiting: waiting returns the number of packets that may yet become durable.
func TestWaiting(t *testing.T) {
	f := status.Flow{Packets: 100, Durable: status.Position{Packets: 60}, Dropped: map[string]uint64{"beyond_count": 7, "write_failed": 3, "lost_ring_full": 20}}
	if n := waiting(&f); n != 30 {
		t.Errorf("%d packets wait, not 30", n)
	}
	f.Durable.Packets = 200
	if n := waiting(&f); n != 0 {
		t.Errorf("%d packets wait", n)
	}
	f = status.Flow{Packets: 1000, Feed: &status.Feed{Messages: 5000, Empty: 10}, Durable: status.Position{Packets: 4960}}
	if n := waiting(&f); n != 30 {
		t.Errorf("%d messages of a feed wait, want 30", n)
	}
}
