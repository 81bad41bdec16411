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
	Words    uint64            `json:"words,omitempty"` // peers change them
	Bytes    uint64            `json:"bytes"`           // of its memory
	Run      uint64            `json:"run"`             // differs each time when the state begins empty
	Position uint64            `json:"position"`        // of the last update, since the daemon began
	Entries  uint64            `json:"entries"`         // objects or keys that are there
	Updates  uint64            `json:"updates"`         // that were applied
	Payload  uint64            `json:"payload_bytes"`
	Refused  map[string]uint64 `json:"refused"` // updates, by reason
	Readers  []StateReader     `json:"readers,omitempty"`
	Remote   *StateServer      `json:"remote,omitempty"` // nil: no peer can read it
}

// StateReader is a program that may read a state.
type StateReader struct {
	Program string `json:"program"`
	Reading bool   `json:"reading"` // it has opened the state
}

// StateServer lets RDMA peers read a state.
type StateServer struct {
	Device     string            `json:"device"`
	Listen     string            `json:"listen"`
	TLS        bool              `json:"tls"`
	Readers    int               `json:"readers"`         // now
	Accepted   uint64            `json:"accepted"`        // so far
	Refused    map[string]uint64 `json:"refused"`         // by reason
	Handshakes map[string]uint64 `json:"handshakes"`      // connections not established, by reason
	Error      string            `json:"error,omitempty"` // why no peer can connect
}
