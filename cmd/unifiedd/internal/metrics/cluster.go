package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// The metrics of how peers are found by their names.
var (
	descClusterUp         = describe("cluster_up", "1 while the registry of daemons answers.")
	descClusterRegistered = describe("cluster_registered", "1 while the daemon is registered under its name.")
	descClusterAnswered   = describe("cluster_answered_timestamp_seconds", "When the registry of daemons answered last.")
	descClusterEvents     = describe("cluster_events_total", "Events between the daemon and the registry of daemons.", "status")
	descClusterRefused    = describe("cluster_refused_records_total", "Records of other daemons that were refused, by reason.", "reason")
	descClusterLacks      = describe("cluster_unregistered", "Flows and states that take connections and that others cannot find.", "kind")
	descClusterNames      = describe("cluster_names", "Daemons that flows name, by what is known of them.", "status")
	descPeerFollowed      = describe("peer_followed_total", "Times that the RDMA peer was followed to another address.", "flow", "host")
)

// collectCluster sends the metrics of how peers are found.
func collectCluster(out chan<- prometheus.Metric, c *status.Cluster) {
	if c == nil {
		return
	}
	gauge(out, descClusterUp, truth(c.Up))
	if c.Name != "" { // it registers
		gauge(out, descClusterRegistered, truth(c.Registered))
		gauge(out, descClusterLacks, float64(len(c.Unregistered)), "flow")
		gauge(out, descClusterLacks, float64(len(c.UnregisteredStates)), "state")
	}
	if c.Answered != nil {
		gauge(out, descClusterAnswered, float64(c.Answered.UnixNano())/1e9)
	}
	each(out, descClusterEvents, c.Counts)
	each(out, descClusterRefused, c.Refused)
	names := map[string]int{status.NameRegistered: 0, status.NameGone: 0, status.NameUnknown: 0, status.NameRefused: 0}
	for _, n := range c.Names {
		names[n.State]++
	}
	for state, n := range names {
		gauge(out, descClusterNames, float64(n), state)
	}
}
