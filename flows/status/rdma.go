package status

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// Receives is the end of a flow at which RDMA clients send.
type Receives struct {
	Device     string            `json:"device"`
	Listen     string            `json:"listen"`
	TLS        bool              `json:"tls"`
	Clients    []Client          `json:"clients"`    // by session, those that left lately among them
	Connected  uint64            `json:"connected"`  // connections that came about
	Broken     uint64            `json:"broken"`     // and those that failed
	Replays    uint64            `json:"replays"`    // messages that had come before
	Refused    map[string]uint64 `json:"refused"`    // clients that were turned away or ended, by reason
	Handshakes map[string]uint64 `json:"handshakes"` // connections that did not come about, by reason
	Method     string            `json:"method"`     // how messages come: send or write
	Posted     int64             `json:"posted"`     // receives, or frames to be written, that wait for a message
	Granted    uint64            `json:"granted"`    // frames that clients may write to now
	Grants     uint64            `json:"grants"`     // and how many there were
}

// Client is one session of a client, over all its connections.
type Client struct {
	Name         string    `json:"name"` // of its certificate, else its address
	Session      string    `json:"session"`
	State        string    `json:"state"`
	Messages     uint64    `json:"messages"`
	Bytes        uint64    `json:"bytes"`        // of them, headers included
	Sequence     uint64    `json:"sequence"`     // of the last that came
	Acknowledged uint64    `json:"acknowledged"` // and of the last that is acknowledged
	Limit        uint64    `json:"limit"`        // up to which it may send
	Granted      uint64    `json:"granted"`      // frames that it may write to
	Seen         time.Time `json:"seen"`         // when the last message came
	Error        string    `json:"error,omitempty"`
}

// Sends is the end of a flow that sends to RDMA peers.
type Sends struct {
	Device string `json:"device"`
	Peers  []Peer `json:"peers"`
}

// Peer is one peer. Offered = Acknowledged + Dropped + Waiting + InFlight.
type Peer struct {
	Name         string            `json:"name"`
	Address      string            `json:"address"`
	State        string            `json:"state"`
	Error        string            `json:"error,omitempty"`       // why the last connection ended, or did not come about
	Certificate  string            `json:"certificate,omitempty"` // the name in it
	Offered      uint64            `json:"offered"`               // messages that were for it
	Acknowledged uint64            `json:"acknowledged"`
	Dropped      map[string]uint64 `json:"dropped"` // messages it did not get, by reason
	Waiting      uint64            `json:"waiting"` // messages that were not sent yet
	InFlight     uint64            `json:"in_flight"`
	Method       string            `json:"method"`            // how messages go to it: send or write; empty before it was connected
	Credit       uint64            `json:"credit"`            // messages that the peer has room for
	Bytes        uint64            `json:"bytes"`             // of payloads sent, each time again
	Resent       uint64            `json:"resent"`            // messages
	Connections  uint64            `json:"connections"`       // that came about
	Failures     uint64            `json:"failures"`          // connections that ended, and attempts that failed
	Latency      *latency.Summary  `json:"latency,omitempty"` // from when a message was taken until the peer acknowledged it
}

// Blocks is the end of a flow at which RDMA clients ask for blocks.
type Blocks struct {
	Device    string            `json:"device"`
	Listen    string            `json:"listen"`
	TLS       bool              `json:"tls"`
	Size      uint64            `json:"size"`      // of what is served
	Requests  uint64            `json:"requests"`  // that came, those refused too
	Served    uint64            `json:"served"`    // requests whose bytes have arrived
	Bytes     uint64            `json:"bytes"`     // of those
	Retried   uint64            `json:"retried"`   // requests that were read again just as they asked, since more than that could not be
	Waited    uint64            `json:"waited"`    // requests that could not be begun at once for want of buffers
	Abandoned uint64            `json:"abandoned"` // requests whose client was gone
	Ended     uint64            `json:"ended"`     // clients that broke the protocol, or failed
	Refused   map[string]uint64 `json:"refused"`   // requests, by reason
	// TurnedAway are clients that were refused, and Handshakes connections that did not come about, by reason.
	TurnedAway map[string]uint64 `json:"turned_away"`
	Handshakes map[string]uint64 `json:"handshakes"`
	Frames     Cache             `json:"frames"`  // what was found in frames, for short requests
	Extents    Cache             `json:"extents"` // and in extents
	Clients    []Reader          `json:"clients"`
}

// Cache is the use of the block server's cache.
type Cache struct {
	Buffers   int    `json:"buffers"`
	Hits      uint64 `json:"hits"`
	Misses    uint64 `json:"misses"`
	Evictions uint64 `json:"evictions"`
	Reads     uint64 `json:"reads"` // buffers that the disk was asked to fill
	BytesRead uint64 `json:"bytes_read"`
	Failed    uint64 `json:"failed"` // buffers that it did not fill
}

// Reader is one client of a block server.
type Reader struct {
	Name     string            `json:"name"` // of its certificate
	Address  string            `json:"address"`
	Since    time.Time         `json:"since"`
	Requests uint64            `json:"requests"`
	Served   uint64            `json:"served"`
	Bytes    uint64            `json:"bytes"`
	Refused  map[string]uint64 `json:"refused"`
}

// RDMADevice is an RDMA device that flows have open. A device of libibverbs copies nothing; RoCE in software counts here what it does, for all flows together.
type RDMADevice struct {
	Name  string `json:"name"`
	Flows int    `json:"users"` // ends of flows
	// QueuePairs is how many are open: one for each connection, of clients and of peers.
	QueuePairs int `json:"queue_pairs"`
	// Placed is the bytes that were copied to where a receive, a WRITE or a READ says: the one copy there must be of what comes, requests and
	// acknowledgements of 64 bytes included.
	Placed uint64 `json:"placed_bytes"`
	// SentCopied is the bytes that were copied to be sent and not gathered from where they lie, by reason: short, inline, again, parts, whole, own.
	SentCopied map[string]uint64 `json:"sent_copied_bytes,omitempty"`
}
