package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// TestGroupMetrics: a scrape has what an operator of a group alerts on.
func TestGroupMetrics(t *testing.T) {
	text := scrapeOf(t, &status.Daemon{Flows: []status.Flow{
		{Name: "orders", Group: &status.Group{Member: "a", Leader: "b", Epoch: 7, Committed: 90, Last: 100, Elections: 2, Silence: 1500 * time.Microsecond, Silent: 9, Received: 12, Stale: 3,
			Paths: []status.Path{{Device: "roce:eth2", State: "failed", Connections: 2, Failures: 4}, {Device: "roce:eth3", State: "connected", Connections: 3, Failures: 1}}}},
		{Name: "trades", Group: &status.Group{Member: "a", Leader: "a", Recovering: true, Sent: 11, Copies: 6, Lacking: 8, CopyLimit: 20000, Stalled: 7, Fenced: 5, Cut: 4}},
		{Name: "quotes", Group: &status.Group{Member: "a"}},
	}})
	for _, want := range []string{
		`group_leads{flow="orders"} 0`, `group_leads{flow="trades"} 1`, `group_leads{flow="quotes"} 0`,
		`group_leader_known{flow="orders"} 1`, `group_leader_known{flow="quotes"} 0`,
		`group_epoch{flow="orders"} 7`, `group_position{flow="orders",status="committed"} 90`, `group_position{flow="orders",status="last"} 100`,
		`group_recovering{flow="trades"} 1`, `group_elections_total{flow="orders"} 2`, `group_longest_silence_seconds{flow="orders"} 0.0015`, `group_silent_links_total{flow="orders"} 9`,
		`group_records_total{flow="orders",op="received"} 12`, `group_records_total{flow="trades",op="sent"} 11`,
		`group_fenced_records_total{flow="trades"} 5`, `group_cut_records_total{flow="trades"} 4`,
		`group_lacking_records{flow="trades"} 8`, `group_copied_records_total{flow="trades"} 6`, `group_copies_limit_per_second{flow="trades"} 20000`, `group_stalled_links_total{flow="trades"} 7`,
		`group_ignored_messages_total{flow="orders",reason="stale_epoch"} 3`,
		`group_path_up{device="roce:eth2",flow="orders"} 0`, `group_path_connections_total{device="roce:eth2",flow="orders"} 2`, `group_path_failures_total{device="roce:eth2",flow="orders"} 4`,
		`group_path_up{device="roce:eth3",flow="orders"} 1`, `group_path_connections_total{device="roce:eth3",flow="orders"} 3`, `group_path_failures_total{device="roce:eth3",flow="orders"} 1`,
	} {
		if !strings.Contains(text, "unifiedd_"+want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}
