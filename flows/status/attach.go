package status

// Submits is the source of a flow from an attached program.
type Submits struct {
	Program  string `json:"program"`
	Trusted  bool   `json:"trusted,omitempty"` // peers get messages from where the program can still change them
	Open     bool   `json:"open"`              // the program has a port open
	Ports    uint64 `json:"ports"`             // opened so far
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	Frames   uint64 `json:"frames"` // that the program has now
}

// Gives is the sink of a flow to an attached program.
type Gives struct {
	Program  string `json:"program"`
	Place    string `json:"place,omitempty"`  // of packets of an interface: copy or here
	Expose   bool   `json:"expose,omitempty"` // the program can read every packet of the queues
	Open     bool   `json:"open"`
	Ports    uint64 `json:"ports"`
	Messages uint64 `json:"messages"` // or packets
	Bytes    uint64 `json:"bytes"`
	Released uint64 `json:"released"` // frames that the program gave back
	Frames   uint64 `json:"frames"`   // that the program has now
}

// Programs are the programs of this host that may attach.
type Programs struct {
	Socket   string            `json:"socket"`
	Programs []Program         `json:"programs"`
	Channels []Channel         `json:"channels,omitempty"`
	Refused  map[string]uint64 `json:"refused,omitempty"` // connections that were refused, by reason
}

// Channel is a channel between programs. Writer and readers tell its numbers.
type Channel struct {
	Name    string          `json:"name"`
	Writer  string          `json:"writer"`
	Writing bool            `json:"writing"` // the writer is there
	Last    uint64          `json:"last"`    // sequence of the last message
	Stalls  uint64          `json:"stalls"`  // messages for which the present writer had to wait
	Readers []ChannelReader `json:"readers"`
}

// ChannelReader is a reader of a channel.
type ChannelReader struct {
	Program string `json:"program"`
	Blocks  bool   `json:"blocks"`  // the writer waits for it
	Reading bool   `json:"reading"` // it is there
	Lag     uint64 `json:"lag"`     // messages that it has not read
	Lost    uint64 `json:"lost"`    // messages that it has lost
}

// Program is a program that may attach.
type Program struct {
	Name     string            `json:"name"`
	Attached bool              `json:"attached"`
	PID      int32             `json:"pid,omitempty"`
	Attaches uint64            `json:"attaches"` // so far
	In       uint64            `json:"in_bytes"`
	Out      uint64            `json:"out_bytes"`
	Ended    map[string]uint64 `json:"ended,omitempty"` // ends of connections and ports, and refusals, by reason
}
