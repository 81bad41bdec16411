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
	descClusterEvents     = describe("cluster_events_total", "Registered: the daemon was registered. failed: the registry did not answer, or refused a request. lease_lost: the lease ended while it did not answer, or somebody revoked it. name_taken: another daemon has the name. watch_ended: a name had to be read anew.", "status")
	descClusterRefused    = describe("cluster_refused_records_total", "Records of other daemons that were refused; the last good one stays in use. too_long: more than 64 KiB. bad_json. bad_version: of a release that this one does not understand. bad_name: another daemon's record, or a name that is none. bad_address, bad_gid: not an IP address (with a port) of a host. bad_text: too long, or with characters that are not printed. too_many: flows, states, devices or addresses.", "reason")
	descClusterLacks      = describe("cluster_unregistered", "Flows and states (kind: flow, state) that take connections, and that others cannot find. unifiedd status says why: the port is not fixed, or no address is one that other hosts reach.", "kind")
	descClusterNames      = describe("cluster_names", "Daemons that flows name. registered. gone: not registered now, and flows use the last addresses. unknown: never found. refused: the newest record is refused.", "status")
	descPeerFollowed      = describe("peer_followed_total", "Times that a peer, which the flow names as NAME/FLOW, was followed to another address.", "flow", "host")
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
