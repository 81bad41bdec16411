package status

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// Receives is the source of a flow that receives from RDMA clients.
type Receives struct {
	Device     string            `json:"device"`
	Listen     string            `json:"listen"`
	TLS        bool              `json:"tls"`
	Clients    []Client          `json:"clients"`                                            // by session, including recently disconnected ones
	Connected  uint64            `json:"connected" metric:"connections_total"`               // established connections
	Broken     uint64            `json:"broken" metric:"broken_connections_total"`           // failed connections
	Replays    uint64            `json:"replays" metric:"replayed_messages_total"`           // messages received again
	Refused    map[string]uint64 `json:"refused" metric:"refused_total,reason"`              // clients refused or disconnected, by reason
	Handshakes map[string]uint64 `json:"handshakes" metric:"failed_handshakes_total,reason"` // connections not established, by reason
	Method     string            `json:"method"`                                             // how clients send messages: send or write
	Posted     int64             `json:"posted" metric:"posted_receives"`                    // receives, or frames for written messages, without a message
	Granted    uint64            `json:"granted" metric:"granted_messages"`                  // frames that clients may write to now
	Grants     uint64            `json:"grants" metric:"grants_total"`                       // frames granted so far
	Paths      []ListenPath      `json:"paths,omitempty"`                                    // of all devices, if there are several
}

// ListenPath is one of several devices over which clients connect.
type ListenPath struct {
	Device    string `json:"device"`
	Listen    string `json:"listen"`
	Connected uint64 `json:"connected"` // established connections
	Broken    uint64 `json:"broken"`    // failed connections
	Messages  uint64 `json:"messages"`
	Early     uint64 `json:"early"` // messages that came before their turn, and waited for others over other paths
}

// Client is one session of a client, over all its connections.
type Client struct {
	Name         string    `json:"name"` // in its certificate, else its address
	Session      string    `json:"session"`
	State        string    `json:"state"`
	Messages     uint64    `json:"messages"`
	Bytes        uint64    `json:"bytes"`        // of messages, with headers
	Sequence     uint64    `json:"sequence"`     // of the last message received
	Acknowledged uint64    `json:"acknowledged"` // sequence of the last message acknowledged
	Limit        uint64    `json:"limit"`        // last sequence that it may send
	Granted      uint64    `json:"granted"`      // frames that it may write to
	Seen         time.Time `json:"seen"`         // when the last message came
	Error        string    `json:"error,omitempty"`
}

// Sends is the sink of a flow that sends to RDMA peers.
type Sends struct {
	Device string `json:"device"`
	Peers  []Peer `json:"peers" label:"host=Name"`
}

// Peer is one peer. Offered = Acknowledged + Dropped + Waiting + InFlight.
type Peer struct {
	Name         string            `json:"name"`
	Address      string            `json:"address"`
	State        string            `json:"state" metric:"peer_up,=connected"`
	Error        string            `json:"error,omitempty"`                                     // why the last connection ended or failed
	Certificate  string            `json:"certificate,omitempty"`                               // name in the peer's certificate
	Offered      uint64            `json:"offered" metric:"peer_messages_total,status:offered"` // messages for it
	Acknowledged uint64            `json:"acknowledged" metric:"peer_messages_total,status:acknowledged"`
	Dropped      map[string]uint64 `json:"dropped" metric:"peer_dropped_messages_total,reason"` // messages that it did not get, by reason
	Waiting      uint64            `json:"waiting" metric:"peer_waiting_messages"`              // messages not sent yet
	InFlight     uint64            `json:"in_flight" metric:"peer_waiting_messages"`
	Method       string            `json:"method"`                                                // send or write; empty before the first connection
	Credit       uint64            `json:"credit"`                                                // messages that the peer has room for
	Bytes        uint64            `json:"bytes"`                                                 // of payloads sent, including resent ones
	Resent       uint64            `json:"resent" metric:"peer_messages_total,status:resent"`     // messages sent again
	Connections  uint64            `json:"connections"`                                           // established connections
	Failures     uint64            `json:"failures" metric:"peer_failures_total"`                 // connections ended, and failed attempts
	Standby      int               `json:"standby" metric:"peer_standby_connections"`             // connections to members of a group that do not lead
	Moves        uint64            `json:"moves" metric:"peer_moves_total"`                       // connections that have begun as such
	Named        string            `json:"named,omitempty"`                                       // NAME/FLOW, if a resolver finds it
	Followed     uint64            `json:"followed"`                                              // times that it was followed to another address
	Latency      *latency.Summary  `json:"latency,omitempty"`                                     // from taking a message to its acknowledgement
	Paths        []Path            `json:"paths,omitempty" label:"device=Device,address=Address"` // the ways to it, if there are several
	PathMode     string            `json:"path_mode,omitempty"`                                   // standby or active, if there are several
	PathReason   string            `json:"path_reason,omitempty"`                                 // why one is used at a time although the mode is active
}

// Path is one of several ways to a peer.
type Path struct {
	Device      string    `json:"device"`
	Address     string    `json:"address"`
	State       string    `json:"state" metric:"peer_path_up,=connected"`           // connected, standby or failed
	Error       string    `json:"error,omitempty"`                                  // why it failed
	Connections uint64    `json:"connections" metric:"peer_path_connections_total"` // times that it was taken
	Failures    uint64    `json:"failures" metric:"peer_path_failures_total"`       // connections ended, and failed attempts
	Messages    uint64    `json:"messages" metric:"peer_path_messages_total"`       // sent over it, each transmission counted
	Probes      uint64    `json:"probes" metric:"peer_path_probes_total"`           // of a silent receiver over it
	Taken       time.Time `json:"taken,omitzero"`                                   // the last time
	Left        time.Time `json:"left,omitzero"`                                    // the last time
}

// Blocks is the sink of a flow that serves blocks to RDMA clients.
type Blocks struct {
	Device    string            `json:"device"`
	Listen    string            `json:"listen"`
	TLS       bool              `json:"tls"`
	Size      uint64            `json:"size"`                                                     // of the file or device
	Requests  uint64            `json:"requests" metric:"block_requests_total,status:requested"`  // received, including refused ones
	Served    uint64            `json:"served" metric:"block_requests_total,status:served"`       // requests whose data the client has
	Bytes     uint64            `json:"bytes" metric:"block_served_bytes_total"`                  // of requests served
	Retried   uint64            `json:"retried" metric:"block_requests_total,status:retried"`     // requests read again alone after a failed larger read
	Waited    uint64            `json:"waited" metric:"block_requests_total,status:waited"`       // requests that waited for buffers
	Abandoned uint64            `json:"abandoned" metric:"block_requests_total,status:abandoned"` // requests of disconnected clients
	Ended     uint64            `json:"ended"`                                                    // clients that failed or violated the protocol
	Refused   map[string]uint64 `json:"refused" metric:"refused_total,reason"`                    // requests, by reason
	// TurnedAway counts refused clients, and Handshakes counts connections not established, by reason.
	TurnedAway map[string]uint64 `json:"turned_away" metric:"refused_total,reason"`
	Handshakes map[string]uint64 `json:"handshakes" metric:"failed_handshakes_total,reason"`
	Frames     Cache             `json:"frames" label:"op:frame"`   // cache in frames, for short requests
	Extents    Cache             `json:"extents" label:"op:extent"` // cache in extents
	// Kept and Discarded count buffers of an earlier run when the flow was opened, with to.cache_index: those whose
	// data is used again, and others by reason.
	Kept      uint64            `json:"kept,omitempty"`
	Discarded map[string]uint64 `json:"discarded,omitempty" metric:"cache_restart_buffers_total,status"`
	Clients   []Reader          `json:"clients"`
}

// Cache is the use of the block server's cache.
type Cache struct {
	Buffers   int    `json:"buffers"`
	Hits      uint64 `json:"hits" metric:"cache_lookups_total,status:hit"`
	Misses    uint64 `json:"misses" metric:"cache_lookups_total,status:miss"`
	Evictions uint64 `json:"evictions" metric:"cache_lookups_total,status:evicted"`
	Reads     uint64 `json:"reads"` // buffers read from the disk
	BytesRead uint64 `json:"bytes_read"`
	Failed    uint64 `json:"failed" metric:"cache_lookups_total,status:failed"` // failed reads
}

// Reader is one client of a block server.
type Reader struct {
	Name     string            `json:"name"` // in its certificate
	Address  string            `json:"address"`
	Since    time.Time         `json:"since"`
	Requests uint64            `json:"requests"`
	Served   uint64            `json:"served"`
	Bytes    uint64            `json:"bytes"`
	Refused  map[string]uint64 `json:"refused"`
}

// RDMADevice is an RDMA device that flows have open. A device of libibverbs copies nothing. For
// software RoCE the counters cover all flows together.
type RDMADevice struct {
	Name  string `json:"name"`
	Flows int    `json:"users"` // sources and sinks of flows
	// QueuePairs is the number of open queue pairs: one per connection of a client or peer.
	QueuePairs int `json:"queue_pairs" metric:"rdma_queue_pairs"`
	// Placed is the number of bytes copied to the place that a receive, WRITE or READ specifies. Every
	// received byte needs this one copy. Requests and acknowledgements of 64 bytes are included.
	Placed uint64 `json:"placed_bytes"`
	// SentCopied is the number of bytes copied before sending, not gathered from their place, by
	// reason: short, inline, again, parts, whole, own.
	SentCopied map[string]uint64 `json:"sent_copied_bytes,omitempty"`
}
