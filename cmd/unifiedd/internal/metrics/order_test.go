package metrics

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// TestOrderRules: what rules have made of messages, by rule and by the reason.
func TestOrderRules(t *testing.T) {
	text := scrapeOf(t, &status.Daemon{Flows: []status.Flow{
		{Name: "hits", Orders: &status.Orders{Rules: &status.OrderRules{
			Matched: 9, Unmatched: 8, Short: 7, NoUDP: 6, LoggedIn: true, Heartbeats: 5, Refused: map[string]uint64{"over_rate": 4},
			Rules: []status.OrderRule{{Name: "cheap", Matched: 3, Left: 2}, {Name: "dear", Matched: 6, Left: 1}},
		}}},
		{Name: "trades", Orders: &status.Orders{}},
	}})
	for _, want := range []string{
		`messages_total{flow="hits",outcome="matched"} 9`, `messages_total{flow="hits",outcome="unmatched"} 8`, `messages_total{flow="hits",outcome="short"} 7`,
		`messages_total{flow="hits",outcome="no_udp"} 6`, `matched_total{flow="hits",rule="cheap"} 3`, `left_total{flow="hits",rule="cheap"} 2`,
		`matched_total{flow="hits",rule="dear"} 6`, `left_total{flow="hits",rule="dear"} 1`, `logged_in{flow="hits"} 1`, `heartbeats_total{flow="hits"} 5`,
		`session_refused_total{flow="hits",reason="over_rate"} 4`,
	} {
		if !strings.Contains(text, "unifiedd_order_rules_"+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `rules_logged_in{flow="trades"}`) {
		t.Errorf("a flow without rules has metrics of them:\n%s", text)
	}
}

// TestOrderTimes: the times of orders are histograms, and what is dropped has its reason. A flow without a file has no
// metrics of one.
func TestOrderTimes(t *testing.T) {
	d := func(ns int64, n int64) *latency.Distribution {
		return &latency.Distribution{Summary: latency.Summary{Count: n, Mean: float64(ns)}, Buckets: []latency.Bucket{{Below: 2 * ns, Count: n}}}
	}
	text := scrapeOf(t, &status.Daemon{Flows: []status.Flow{
		{Name: "trades", Orders: &status.Orders{Times: &status.OrderTimes{
			TickToDecision: d(1024, 3), DecisionToOut: d(2048, 5), TickToOut: d(4096, 3), NoTick: 2, NoStamp: 1,
			File: &status.OrderTimesFile{Orders: 4, Dropped: map[string]uint64{"slow_file": 1, "file_error": 0}},
		}}},
		{Name: "quotes", Orders: &status.Orders{Times: &status.OrderTimes{NoTick: 7}}},
	}})
	for _, want := range []string{
		`orders_latency_seconds_count{flow="trades",part="tick_to_decision"} 3`, `orders_latency_seconds_count{flow="trades",part="decision_to_out"} 5`,
		`orders_latency_seconds_count{flow="trades",part="tick_to_out"} 3`, `orders_latency_seconds_sum{flow="trades",part="decision_to_out"} 1.024e-05`,
		`orders_without_time_total{flow="trades",time="tick"} 2`, `orders_without_time_total{flow="trades",time="stamp"} 1`, `orders_without_time_total{flow="quotes",time="tick"} 7`,
		`orders_times_written_total{flow="trades"} 4`, `orders_times_dropped_total{flow="trades",reason="slow_file"} 1`, `orders_times_dropped_total{flow="trades",reason="file_error"} 0`,
	} {
		if !strings.Contains(text, "unifiedd_"+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, no := range []string{`orders_latency_seconds_count{flow="quotes"`, `orders_times_written_total{flow="quotes"`} {
		if strings.Contains(text, no) {
			t.Errorf("%s in\n%s", no, text)
		}
	}
}
