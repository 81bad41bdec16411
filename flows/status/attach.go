package status

import "time"

// Submits is the source of a flow from an attached program.
type Submits struct {
	Program  string `json:"program"`
	Trusted  bool   `json:"trusted,omitempty"`              // peers get messages from where the program can still change them
	Open     bool   `json:"open" metric:"attach_port_open"` // the program has a port open
	Ports    uint64 `json:"ports"`                          // opened so far
	Messages uint64 `json:"messages" metric:"attach_messages_total,op:submitted"`
	Bytes    uint64 `json:"bytes"`
	Frames   uint64 `json:"frames" metric:"attach_frames"` // that the program has now
}

// Gives is the sink of a flow to an attached program.
type Gives struct {
	Program  string `json:"program"`
	Place    string `json:"place,omitempty"`  // of packets of an interface: copy or here
	Expose   bool   `json:"expose,omitempty"` // the program can read every packet of the queues
	Open     bool   `json:"open" metric:"attach_port_open"`
	Ports    uint64 `json:"ports"`
	Messages uint64 `json:"messages" metric:"attach_messages_total,op:given"` // or packets
	Bytes    uint64 `json:"bytes"`
	Released uint64 `json:"released" metric:"attach_messages_total,op:released"` // frames that the program gave back
	Frames   uint64 `json:"frames" metric:"attach_frames"`                       // that the program has now
}

// Programs are the programs of this host that may attach.
type Programs struct {
	Socket   string            `json:"socket"`
	Programs []Program         `json:"programs" label:"program=Name"`
	Channels []Channel         `json:"channels,omitempty" label:"channel=Name"`
	Refused  map[string]uint64 `json:"refused,omitempty" metric:"attach_refused_total,reason"` // connections that were refused, by reason
}

// Arrives is the source and sink of a flow that gets a channel from a peer.
type Arrives struct {
	Channel     string            `json:"channel"`
	Device      string            `json:"device"`
	Listen      string            `json:"listen"`
	TLS         bool              `json:"tls"`
	Peer        string            `json:"peer,omitempty"` // that writes the channel now
	Since       time.Time         `json:"since,omitzero"` // of its connection
	Connections uint64            `json:"connections"`
	Messages    uint64            `json:"messages" metric:"channel_arrived_total"`      // sequences that have arrived
	Batches     uint64            `json:"batches" metric:"channel_batches_total"`       // of messages
	Gaps        uint64            `json:"gaps" metric:"channel_gaps_total"`             // messages that were lost between two connections
	Renumbered  uint64            `json:"renumbered" metric:"channel_renumbered_total"` // times that the messages were numbered anew
	Refused     map[string]uint64 `json:"refused"`                                      // peers, by reason
	Handshakes  map[string]uint64 `json:"handshakes"`                                   // connections that were not established, by reason
	Paths       []ListenPath      `json:"paths,omitempty"`                              // of all devices, if there are several
}

// Channel is a channel between programs. Writer and readers tell its numbers.
type Channel struct {
	Name    string          `json:"name"`
	Writer  string          `json:"writer,omitempty"`                     // empty: a flow writes it
	Writing bool            `json:"writing"`                              // the writer is there, or the peer of the flow
	Last    uint64          `json:"last" metric:"channel_messages_total"` // sequence of the last message
	Stalls  uint64          `json:"stalls" metric:"channel_stalls_total"` // messages for which the present writer had to wait
	Readers []ChannelReader `json:"readers" label:"reader=Program"`
}

// ChannelReader is a reader of a channel.
type ChannelReader struct {
	Program string `json:"program"`                          // or the name of a peer
	Remote  bool   `json:"remote,omitempty"`                 // it is a peer
	Blocks  bool   `json:"blocks"`                           // the writer waits for it
	Reading bool   `json:"reading" metric:"channel_reading"` // it is there
	Lag     uint64 `json:"lag" metric:"channel_lag"`         // messages that it has not read
	Lost    uint64 `json:"lost" metric:"channel_lost_total"` // messages that it has lost
}

// Program is a program that may attach.
type Program struct {
	Name     string            `json:"name"`
	Attached bool              `json:"attached" metric:"attach_attached"`
	PID      int32             `json:"pid,omitempty"`
	Attaches uint64            `json:"attaches" metric:"attach_attaches_total"` // so far
	In       uint64            `json:"in_bytes"`
	Out      uint64            `json:"out_bytes"`
	Ended    map[string]uint64 `json:"ended,omitempty" metric:"attach_ended_total,reason"` // ends of connections and ports, and refusals, by reason
}
