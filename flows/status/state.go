package status

// Updates is the sink of a flow that updates a state.
type Updates struct {
	State    string `json:"state"`
	Position uint64 `json:"position"` // of the state's last update
}

// SharedState is memory that a flow writes, and that programs and RDMA peers read.
type SharedState struct {
	Name     string            `json:"name"`
	Objects  uint64            `json:"objects,omitempty"` // 0: it has keys
	Room     uint32            `json:"room,omitempty"`    // bytes of an object
	Keys     uint64            `json:"keys,omitempty"`
	Words    uint64            `json:"words,omitempty"`                      // peers change them
	Bytes    uint64            `json:"bytes"`                                // of its memory
	Run      uint64            `json:"run"`                                  // differs each time when the state begins empty
	Position uint64            `json:"position" metric:"state_position"`     // of the last update, since the daemon began
	Entries  uint64            `json:"entries" metric:"state_entries"`       // objects or keys that are there
	Updates  uint64            `json:"updates" metric:"state_updates_total"` // that were applied
	Payload  uint64            `json:"payload_bytes" metric:"state_update_bytes_total"`
	Refused  map[string]uint64 `json:"refused" metric:"state_refused_updates_total,reason"` // updates, by reason
	Readers  []StateReader     `json:"readers,omitempty" label:"program=Program"`
	Remote   *StateServer      `json:"remote,omitempty"` // nil: no peer can read it
}

// StateReader is a program that may read a state.
type StateReader struct {
	Program string `json:"program"`
	Reading bool   `json:"reading" metric:"state_reading"` // it has opened the state
}

// StateServer lets RDMA peers read a state.
type StateServer struct {
	Device     string            `json:"device"`
	Listen     string            `json:"listen"`
	TLS        bool              `json:"tls"`
	Readers    int               `json:"readers" metric:"state_peers"`                             // now
	Accepted   uint64            `json:"accepted" metric:"state_accepted_peers_total"`             // so far
	Refused    map[string]uint64 `json:"refused" metric:"state_refused_peers_total,reason"`        // by reason
	Handshakes map[string]uint64 `json:"handshakes" metric:"state_failed_handshakes_total,reason"` // connections not established, by reason
	Error      string            `json:"error,omitempty"`                                          // why no peer can connect
}
