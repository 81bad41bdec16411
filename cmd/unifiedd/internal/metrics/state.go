package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// The metrics of states.
var (
	descStatePosition = describe("state_position", "Position of the last update of the state, since the daemon began.", "state")
	descStateEntries  = describe("state_entries", "Objects or keys that the state has.", "state")
	descStateUpdates  = describe("state_updates_total", "Updates that were applied to the state.", "state")
	descStateBytes    = describe("state_update_bytes_total", "Bytes of payload that updates of the state brought.", "state")
	descStateRefused  = describe("state_refused_updates_total", "Updates of the state that were refused, by reason.", "state", "reason")
	descStateReading  = describe("state_reading", "1 while the program has the state open.", "state", "program")
	descStatePeers    = describe("state_peers", "RDMA peers that read the state now.", "state")
	descStateAccepted = describe("state_accepted_peers_total", "RDMA peers that were let in to read the state.", "state")
	descStateAway     = describe("state_refused_peers_total", "Peers that were not let in: the reasons are those of messages.", "state", "reason")
	descStateFailed   = describe("state_failed_handshakes_total", "Connections that were not established, by the reason of the handshake.", "state", "reason")
)

// collectStates sends the metrics of the states.
func collectStates(out chan<- prometheus.Metric, all []status.SharedState) {
	for i := range all {
		s := &all[i]
		gauge(out, descStatePosition, float64(s.Position), s.Name)
		gauge(out, descStateEntries, float64(s.Entries), s.Name)
		counter(out, descStateUpdates, s.Updates, s.Name)
		counter(out, descStateBytes, s.Payload, s.Name)
		each(out, descStateRefused, s.Refused, s.Name)
		for _, r := range s.Readers {
			gauge(out, descStateReading, truth(r.Reading), s.Name, r.Program)
		}
		if r := s.Remote; r != nil {
			gauge(out, descStatePeers, float64(r.Readers), s.Name)
			counter(out, descStateAccepted, r.Accepted, s.Name)
			each(out, descStateAway, r.Refused, s.Name)
			each(out, descStateFailed, r.Handshakes, s.Name)
		}
	}
}
