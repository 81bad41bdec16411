package metrics

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
)

// TestCollectCluster: a scrape counts the flows and states that others cannot find, and peers by what is known of them. A
// daemon that registers nowhere has neither.
func TestCollectCluster(t *testing.T) {
	c := status.Cluster{Up: true, Name: "desk", Unregistered: map[string]string{"a": "why", "b": "why"}, UnregisteredStates: map[string]string{"c": "why"},
		Names: []status.ClusterName{{State: status.NameGone}}}
	text := scrapeOf(t, &status.Daemon{Cluster: &c})
	for _, want := range []string{`unifiedd_cluster_unregistered{kind="flow"} 2`, `unifiedd_cluster_unregistered{kind="state"} 1`, `unifiedd_cluster_registered 0`,
		`unifiedd_cluster_names{status="gone"} 1`, `unifiedd_cluster_names{status="registered"} 0`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	text = scrapeOf(t, &status.Daemon{Cluster: &status.Cluster{Up: true}})
	if strings.Contains(text, "unifiedd_cluster_unregistered") || strings.Contains(text, "unifiedd_cluster_registered") {
		t.Errorf("a daemon that does not register has:\n%s", text)
	}
}
